// SPDX-License-Identifier: Apache-2.0
#include "backends/hip/device.hpp"

#include <array>

namespace lowtide::hip {
namespace {

void* pointer(DeviceAddress address) { return reinterpret_cast<void*>(address.value); }

Failure no_host_backing() { return fail(Code::unsupported, "HIP puts no host memory behind a device address"); }

Failure no_blank_memory() {
  return fail(Code::unsupported, "there is no code for AMD's devices that fills and scans blank memory");
}

}  // namespace

// A key that could not be drawn is never used: there is no kernel for digests.
Device::Device(const Runtime& runtime, DeviceId device, std::string device_name, Capabilities capabilities,
               std::string reason)
    : runtime_(runtime),
      device_(device),
      device_name_(std::move(device_name)),
      capabilities_(capabilities),
      reason_(std::move(reason)),
      digest_key_(DigestKey::draw().value_or(DigestKey(0))) {}

Device::~Device() {
  const DeviceGuard guard(runtime_, device_);
  if (guard.result() == hipSuccess && copier_) copier_->destroy();
}

Status Device::attach(ContextId context) {
  if (context != context_of(device_)) {
    return fail(Error::format(Code::invalid, "context %zu is not that of device %d", context.value, index_of(device_)));
  }
  const std::lock_guard lock(copying_);
  if (copier_) return {};
  return on_device("hipSetDevice", [&]() -> Status {
    auto copier = Copier::make(runtime_);
    if (!copier) return fail(copier.error());
    copier_ = *copier;
    return {};
  });
}

void Device::detach(ContextId context) noexcept {
  if (context != context_of(device_)) return;
  const std::lock_guard lock(copying_);
  copier_.reset();
}

Result<PhysicalId> Device::create_host(Bytes) { return no_host_backing(); }

Status Device::set_read_access(AddressRange, std::span<const DeviceId>) { return no_host_backing(); }

template <class Call>
Status Device::start_copy(const char* name, Bytes bytes, Call call) {
  const std::lock_guard lock(copying_);
  if (!copier_) {
    return fail(Error::format(Code::driver, "device %d has no live context for %s", index_of(device_), name));
  }
  return on_device(name, [&] { return copier_->start(name, bytes, call); });
}

Status Device::copy_out(void* host, AddressRange range) {
  return start_copy("hipMemcpyDtoHAsync", range.size, [&](hipStream_t stream) {
    return runtime_.hipMemcpyDtoHAsync(host, pointer(range.start), range.size.value, stream);
  });
}

Status Device::copy_in(AddressRange range, const void* host) {
  return start_copy("hipMemcpyHtoDAsync", range.size, [&](hipStream_t stream) {
    return runtime_.hipMemcpyHtoDAsync(pointer(range.start), const_cast<void*>(host), range.size.value, stream);
  });
}

Status Device::copy_within(AddressRange to, DeviceAddress from) {
  return start_copy("hipMemcpyDtoDAsync", to.size, [&](hipStream_t stream) {
    return runtime_.hipMemcpyDtoDAsync(pointer(to.start), pointer(from), to.size.value, stream);
  });
}

Status Device::fill(AddressRange range, std::uint8_t value) {
  return start_copy("hipMemsetD8Async", range.size, [&](hipStream_t stream) {
    return runtime_.hipMemsetD8Async(pointer(range.start), value, range.size.value, stream);
  });
}

Status Device::limit_copies(Bytes in_flight) {
  const std::lock_guard lock(copying_);
  if (!copier_) return {};
  return on_device("hipEventSynchronize", [&] { return copier_->limit(in_flight); });
}

Status Device::finish_copies() {
  const std::lock_guard lock(copying_);
  if (!copier_) return {};  // the streams went with their context, and all work in them
  return on_device("hipStreamSynchronize", [&] { return copier_->finish(); });
}

Status Device::digest(std::span<const AddressRange>, std::span<PageDigest>) {
  return fail(Code::unsupported, "there is no code for AMD's devices that computes digests");
}

Status Device::fill_blank(std::span<const AddressRange>) { return no_blank_memory(); }

Status Device::count_blank(std::span<const AddressRange>, std::span<std::uint64_t>) { return no_blank_memory(); }

Status Device::synchronise() {
  return on_device("hipDeviceSynchronize", [&] { return runtime_.hipDeviceSynchronize(); });
}

Status Device::register_host(void* memory, Bytes size) {
  return on_device("hipHostRegister",
                   [&] { return runtime_.hipHostRegister(memory, size.value, hipHostRegisterPortable); });
}

Status Device::unregister_host(void* memory) noexcept {
  return on_device("hipHostUnregister", [&] {
    const auto result = runtime_.hipHostUnregister(memory);
    return result == hipErrorHostMemoryNotRegistered ? hipSuccess : result;
  });
}

Result<MemoryInfo> Device::memory_info() {
  std::size_t free = 0;
  std::size_t total = 0;
  auto status = on_device("hipMemGetInfo", [&] { return runtime_.hipMemGetInfo(&free, &total); });
  if (!status) return fail(status.error());
  return MemoryInfo{{free}, {total}};
}

Result<DeviceAddress> Device::allocate(Bytes size, ContextId) {
  void* address = nullptr;
  auto status = on_device("hipMalloc", [&]() -> Status {
    return runtime_.status(runtime_.hipMalloc(&address, size.value), "hipMalloc", to_text(size).c_str());
  });
  if (!status) return fail(status.error());
  return DeviceAddress{reinterpret_cast<std::uintptr_t>(address)};
}

Status Device::free(DeviceAddress address, ContextId) {
  return on_device("hipFree", [&] { return runtime_.hipFree(pointer(address)); });
}

bool Device::begins_at(DeviceAddress address) {
  hipDeviceptr_t base = nullptr;
  std::size_t size = 0;
  const auto status = on_device("hipMemGetAddressRange",
                                [&] { return runtime_.hipMemGetAddressRange(&base, &size, pointer(address)); });
  return status && base == pointer(address);
}

std::string name_of(const Runtime& runtime, DeviceId device) {
  std::array<char, 128> name{};
  const auto result = runtime.hipDeviceGetName(name.data(), static_cast<int>(name.size()), index_of(device));
  return result == hipSuccess ? name.data() : "unnamed device";
}

}  // namespace lowtide::hip

// SPDX-License-Identifier: Apache-2.0
#include "backends/cuda/device.hpp"

#include <algorithm>

namespace lowtide::cuda {
namespace {

CUdeviceptr pointer(DeviceAddress address) { return static_cast<CUdeviceptr>(address.value); }
CUcontext handle(ContextId context) { return reinterpret_cast<CUcontext>(context.value); }
ContextId id_of(CUcontext context) { return {reinterpret_cast<std::uintptr_t>(context)}; }

bool is_dead(CUresult result) {
  return result == CUDA_ERROR_INVALID_CONTEXT || result == CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

}  // namespace

Device::Device(const Driver& driver, DeviceId device, std::string device_name, Capabilities capabilities,
               std::string reason)
    : driver_(driver),
      device_(device),
      device_name_(std::move(device_name)),
      capabilities_(capabilities),
      reason_(std::move(reason)),
      workers_(driver) {}

Device::~Device() {
  for (const Lane& lane : lanes_.view()) {
    const ContextGuard guard(driver_, lane.context);
    if (guard.result() != CUDA_SUCCESS) continue;  // the stream went with its context
    lane.copier->destroy();
  }
}

Status Device::attach(ContextId context) {
  const std::lock_guard lock(mutex_);
  const auto known = [&](const Lane& lane) { return lane.context == handle(context); };
  if (std::any_of(lanes_.view().begin(), lanes_.view().end(), known)) return {};
  if (lanes_.count == lanes_.each.size()) {
    return fail(Error::format(Code::unsupported, "device %d has more than %zu live contexts in this process",
                              index_of(device_), lanes_.count));
  }
  const ContextGuard guard(driver_, handle(context));
  if (guard.result() != CUDA_SUCCESS) return fail(driver_.error(guard.result(), "cuCtxPushCurrent"));
  auto copier = Copier::make(driver_);
  if (!copier) return fail(copier.error());
  const auto is_used = [&](const Copier& one) {
    return std::any_of(lanes_.view().begin(), lanes_.view().end(),
                       [&](const Lane& lane) { return lane.copier == &one; });
  };
  auto* const place = std::find_if_not(copiers_.begin(), copiers_.end(), is_used);
  *place = *copier;
  lanes_.each[lanes_.count++] = {handle(context), place};
  workers_.attach(handle(context));
  return {};
}

void Device::detach(ContextId context) noexcept {
  workers_.detach(handle(context));
  const std::lock_guard lock(mutex_);
  const auto end = lanes_.each.begin() + static_cast<std::ptrdiff_t>(lanes_.count);
  const auto kept =
      std::remove_if(lanes_.each.begin(), end, [&](const Lane& lane) { return lane.context == handle(context); });
  lanes_.count = static_cast<std::size_t>(kept - lanes_.each.begin());
}

Device::Lanes Device::lanes() const noexcept {
  const std::lock_guard lock(mutex_);
  return lanes_;
}

template <class Call>
Status Device::in_context(const char* name, Call call) const {
  const Lanes live = lanes();
  if (live.count == 0) {
    return fail(Error::format(Code::driver, "device %d has no live context for %s", index_of(device_), name));
  }
  const Lane& used = live.each.front();
  const ContextGuard guard(driver_, used.context);
  if (guard.result() != CUDA_SUCCESS) return driver_.status(guard.result(), name);
  if constexpr (std::is_same_v<std::invoke_result_t<Call, const Lane&>, CUresult>)
    return driver_.status(call(used), name);
  else
    return call(used);
}

Status Device::copy_out(void* host, AddressRange range) {
  constexpr const char* name = "cuMemcpyDtoHAsync";
  const std::lock_guard lock(copying_);
  return in_context(name, [&](const Lane& lane) {
    return lane.copier->start(name, range.size, [&](CUstream stream) {
      return driver_.cuMemcpyDtoHAsync_v2(host, pointer(range.start), range.size.value, stream);
    });
  });
}

Status Device::copy_in(AddressRange range, const void* host) {
  constexpr const char* name = "cuMemcpyHtoDAsync";
  const std::lock_guard lock(copying_);
  return in_context(name, [&](const Lane& lane) {
    return lane.copier->start(name, range.size, [&](CUstream stream) {
      return driver_.cuMemcpyHtoDAsync_v2(pointer(range.start), host, range.size.value, stream);
    });
  });
}

Status Device::copy_within(AddressRange to, DeviceAddress from) {
  constexpr const char* name = "cuMemcpyDtoDAsync";
  const std::lock_guard lock(copying_);
  return in_context(name, [&](const Lane& lane) {
    return lane.copier->start(name, to.size, [&](CUstream stream) {
      return driver_.cuMemcpyDtoDAsync_v2(pointer(to.start), pointer(from), to.size.value, stream);
    });
  });
}

Status Device::fill(AddressRange range, std::uint8_t value) {
  constexpr const char* name = "cuMemsetD8Async";
  const std::lock_guard lock(copying_);
  return in_context(name, [&](const Lane& lane) {
    return lane.copier->start(name, range.size, [&](CUstream stream) {
      return driver_.cuMemsetD8Async(pointer(range.start), value, range.size.value, stream);
    });
  });
}

Status Device::limit_copies(Bytes in_flight) {
  const std::lock_guard lock(copying_);
  if (lanes().count == 0) return {};
  return in_context("cuEventSynchronize", [&](const Lane& lane) { return lane.copier->limit(in_flight); });
}

Status Device::finish_copies() {
  const std::lock_guard lock(copying_);
  if (lanes().count == 0) return {};  // the streams went with their contexts, and all work in them
  if (auto status = workers_.settle(); !status) return status;
  return in_context("cuStreamSynchronize", [&](const Lane& lane) { return lane.copier->finish(); });
}

Status Device::digest(std::span<const AddressRange> pages, std::span<PageDigest> digests) {
  return workers_.digest(pages, digests);
}

Status Device::fill_blank(std::span<const AddressRange> pages) { return workers_.fill_blank(pages); }

Status Device::count_blank(std::span<const AddressRange> pages, std::span<std::uint64_t> counts) {
  return workers_.count_blank(pages, counts);
}

Status Device::synchronise() {
  const Lanes live = lanes();
  for (const Lane& each : live.view()) {
    const ContextGuard guard(driver_, each.context);
    const auto result = guard.result() != CUDA_SUCCESS ? guard.result() : driver_.cuCtxSynchronize();
    // A context can be destroyed by a way that no door sees; nothing runs in it any more.
    if (is_dead(result))
      detach(id_of(each.context));
    else if (auto status = driver_.status(result, "cuCtxSynchronize"); !status)
      return status;
  }
  return {};
}

Status Device::register_host(void* memory, Bytes size) {
  return in_context("cuMemHostRegister", [&](const Lane&) {
    return driver_.cuMemHostRegister_v2(memory, size.value, CU_MEMHOSTREGISTER_PORTABLE);
  });
}

Status Device::unregister_host(void* memory) noexcept {
  if (lanes().count == 0) return {};
  return in_context("cuMemHostUnregister", [&](const Lane&) {
    const auto result = driver_.cuMemHostUnregister(memory);
    return result == CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED ? CUDA_SUCCESS : result;
  });
}

Result<MemoryInfo> Device::memory_info() {
  std::size_t free = 0;
  std::size_t total = 0;
  auto status = in_context("cuMemGetInfo", [&](const Lane&) { return driver_.cuMemGetInfo_v2(&free, &total); });
  if (!status) return fail(status.error());
  return MemoryInfo{{free}, {total}};
}

/// `context`, or the first live one if it is none.
CUcontext Device::live_or(ContextId context) const noexcept {
  const Lanes live = lanes();
  return context == ContextId{} && live.count > 0 ? live.each.front().context : handle(context);
}

Result<DeviceAddress> Device::allocate(Bytes size, ContextId context) {
  CUdeviceptr address = 0;
  const ContextGuard guard(driver_, live_or(context));
  const auto result = guard.result() != CUDA_SUCCESS ? guard.result() : driver_.cuMemAlloc_v2(&address, size.value);
  if (result != CUDA_SUCCESS) return fail(driver_.error(result, "cuMemAlloc", to_text(size).c_str()));
  return DeviceAddress{address};
}

Status Device::free(DeviceAddress address, ContextId context) {
  const ContextGuard guard(driver_, live_or(context));
  if (is_dead(guard.result())) return {};  // the memory went with it
  const auto result = guard.result() != CUDA_SUCCESS ? guard.result() : driver_.cuMemFree_v2(pointer(address));
  return driver_.status(result, "cuMemFree");
}

bool Device::begins_at(DeviceAddress address) {
  CUdeviceptr base = 0;
  std::size_t size = 0;
  const auto status = in_context("cuMemGetAddressRange", [&](const Lane&) {
    return driver_.cuMemGetAddressRange_v2(&base, &size, pointer(address));
  });
  return status && base == pointer(address);
}

}  // namespace lowtide::cuda

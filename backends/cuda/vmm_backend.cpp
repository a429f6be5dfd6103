// SPDX-License-Identifier: Apache-2.0
#include "backends/cuda/vmm_backend.hpp"

#include <algorithm>
#include <vector>

#include "backends/cuda/host_trial.hpp"

namespace lowtide::cuda {
namespace {

CUdeviceptr pointer(DeviceAddress address) { return static_cast<CUdeviceptr>(address.value); }
CUcontext handle(ContextId context) { return reinterpret_cast<CUcontext>(context.value); }

bool is_dead(CUresult result) {
  return result == CUDA_ERROR_INVALID_CONTEXT || result == CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

std::vector<CUmemAccessDesc> access_of(DeviceId device, std::span<const DeviceId> peers, CUmemAccess_flags flags) {
  std::vector<CUmemAccessDesc> access(1 + peers.size());
  for (std::size_t i = 0; i < access.size(); ++i) {
    access[i].location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access[i].location.id = index_of(i == 0 ? device : peers[i - 1]);
    access[i].flags = flags;
  }
  return access;
}

}  // namespace

VmmBackend::VmmBackend(const Driver& driver, DeviceId device, std::string device_name, Capabilities capabilities,
                       std::string reason)
    : driver_(driver),
      device_(device),
      device_name_(std::move(device_name)),
      capabilities_(capabilities),
      reason_(std::move(reason)),
      digesters_(driver) {}

VmmBackend::~VmmBackend() {
  for (const Lane& lane : lanes_.view()) {
    const ContextGuard guard(driver_, lane.context);
    if (guard.result() != CUDA_SUCCESS) continue;  // the stream went with its context
    lane.copier->destroy();
  }
}

Status VmmBackend::attach(ContextId context) {
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
  digesters_.attach(handle(context));
  return {};
}

void VmmBackend::detach(ContextId context) noexcept {
  digesters_.detach(handle(context));
  const std::lock_guard lock(mutex_);
  const auto end = lanes_.each.begin() + static_cast<std::ptrdiff_t>(lanes_.count);
  const auto kept =
      std::remove_if(lanes_.each.begin(), end, [&](const Lane& lane) { return lane.context == handle(context); });
  lanes_.count = static_cast<std::size_t>(kept - lanes_.each.begin());
}

VmmBackend::Lanes VmmBackend::lanes() const noexcept {
  const std::lock_guard lock(mutex_);
  return lanes_;
}

template <class Call>
Status VmmBackend::in_context(const char* name, Call call) const {
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

CUmemAllocationProp VmmBackend::properties() const noexcept {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = index_of(device_);
  if (capabilities_.export_fd) properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  properties.allocFlags.gpuDirectRDMACapable = capabilities_.rdma ? 1 : 0;
  return properties;
}

Result<DeviceAddress> VmmBackend::reserve(Bytes size) {
  CUdeviceptr address = 0;
  const ContextGuard guard(driver_, nullptr);
  const auto result = driver_.cuMemAddressReserve(&address, size.value, capabilities_.granularity.value, 0, 0);
  if (result != CUDA_SUCCESS) return fail(driver_.error(result, "cuMemAddressReserve", to_text(size).c_str()));
  return DeviceAddress{address};
}

Status VmmBackend::release_reservation(AddressRange range) {
  const ContextGuard guard(driver_, nullptr);
  return driver_.status(driver_.cuMemAddressFree(pointer(range.start), range.size.value), "cuMemAddressFree");
}

Result<PhysicalId> VmmBackend::create(Bytes size) {
  const auto wanted = properties();
  CUmemGenericAllocationHandle physical = 0;
  const ContextGuard guard(driver_, nullptr);
  const auto result = driver_.cuMemCreate(&physical, size.value, &wanted, 0);
  if (result != CUDA_SUCCESS) return fail(driver_.error(result, "cuMemCreate", to_text(size).c_str()));
  return PhysicalId{physical};
}

/// A node that nobody told: the first, which every host has.
CUmemLocation VmmBackend::host_location() const noexcept {
  CUmemLocation location{};
  location.type = CU_MEM_LOCATION_TYPE_HOST_NUMA;
  location.id = std::max(0, capabilities_.host_node);
  return location;
}

bool VmmBackend::has_host_backing() {
  if (!has_host_backing_ && holds_host_memory(*this)) has_host_backing_ = true;
  return has_host_backing_;
}

Result<PhysicalId> VmmBackend::create_host(Bytes size) {
  CUmemAllocationProp wanted{};
  wanted.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  wanted.location = host_location();
  CUmemGenericAllocationHandle physical = 0;
  const ContextGuard guard(driver_, nullptr);
  const auto result = driver_.cuMemCreate(&physical, size.value, &wanted, 0);
  if (result == CUDA_SUCCESS) return PhysicalId{physical};
  const Error error = driver_.error(result, "cuMemCreate", ("host memory, " + to_text(size)).c_str());
  if (error.code() != Code::device_memory) return fail(error);
  return fail(Error(Code::host_budget, error.native(), error.call(), error.message()));
}

Status VmmBackend::release(PhysicalId physical) {
  const ContextGuard guard(driver_, nullptr);
  return driver_.status(driver_.cuMemRelease(physical.value), "cuMemRelease");
}

Status VmmBackend::map(AddressRange range, PhysicalId physical) {
  const ContextGuard guard(driver_, nullptr);
  return driver_.status(driver_.cuMemMap(pointer(range.start), range.size.value, 0, physical.value, 0), "cuMemMap");
}

Status VmmBackend::unmap(AddressRange range) {
  const ContextGuard guard(driver_, nullptr);
  return driver_.status(driver_.cuMemUnmap(pointer(range.start), range.size.value), "cuMemUnmap");
}

Status VmmBackend::give_access(AddressRange range, std::span<const CUmemAccessDesc> access) const {
  const ContextGuard guard(driver_, nullptr);
  const auto result = driver_.cuMemSetAccess(pointer(range.start), range.size.value, access.data(), access.size());
  return driver_.status(result, "cuMemSetAccess");
}

Status VmmBackend::set_access(AddressRange range, std::span<const DeviceId> peers) {
  return give_access(range, access_of(device_, peers, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
}

Status VmmBackend::set_read_access(AddressRange range, std::span<const DeviceId> peers) {
  auto access = access_of(device_, peers, CU_MEM_ACCESS_FLAGS_PROT_READ);
  access.push_back({host_location(), CU_MEM_ACCESS_FLAGS_PROT_READWRITE});
  return give_access(range, access);
}

Status VmmBackend::copy_out(void* host, AddressRange range) {
  constexpr const char* name = "cuMemcpyDtoHAsync";
  const std::lock_guard lock(copying_);
  return in_context(name, [&](const Lane& lane) {
    return lane.copier->start(name, range.size, [&](CUstream stream) {
      return driver_.cuMemcpyDtoHAsync_v2(host, pointer(range.start), range.size.value, stream);
    });
  });
}

Status VmmBackend::copy_in(AddressRange range, const void* host) {
  constexpr const char* name = "cuMemcpyHtoDAsync";
  const std::lock_guard lock(copying_);
  return in_context(name, [&](const Lane& lane) {
    return lane.copier->start(name, range.size, [&](CUstream stream) {
      return driver_.cuMemcpyHtoDAsync_v2(pointer(range.start), host, range.size.value, stream);
    });
  });
}

Status VmmBackend::copy_within(AddressRange to, DeviceAddress from) {
  constexpr const char* name = "cuMemcpyDtoDAsync";
  const std::lock_guard lock(copying_);
  return in_context(name, [&](const Lane& lane) {
    return lane.copier->start(name, to.size, [&](CUstream stream) {
      return driver_.cuMemcpyDtoDAsync_v2(pointer(to.start), pointer(from), to.size.value, stream);
    });
  });
}

Status VmmBackend::fill(AddressRange range, std::uint8_t value) {
  constexpr const char* name = "cuMemsetD8Async";
  const std::lock_guard lock(copying_);
  return in_context(name, [&](const Lane& lane) {
    return lane.copier->start(name, range.size, [&](CUstream stream) {
      return driver_.cuMemsetD8Async(pointer(range.start), value, range.size.value, stream);
    });
  });
}

Status VmmBackend::limit_copies(Bytes in_flight) {
  const std::lock_guard lock(copying_);
  if (lanes().count == 0) return {};
  return in_context("cuEventSynchronize", [&](const Lane& lane) { return lane.copier->limit(in_flight); });
}

Status VmmBackend::finish_copies() {
  const std::lock_guard lock(copying_);
  if (lanes().count == 0) return {};  // the streams went with their contexts, and all work in them
  if (auto status = digesters_.settle(); !status) return status;
  return in_context("cuStreamSynchronize", [&](const Lane& lane) { return lane.copier->finish(); });
}

Status VmmBackend::digest(std::span<const AddressRange> pages, std::span<PageDigest> digests) {
  return digesters_.digest(pages, digests);
}

Status VmmBackend::synchronise() {
  const Lanes live = lanes();
  for (const Lane& each : live.view()) {
    const ContextGuard guard(driver_, each.context);
    const auto result = guard.result() != CUDA_SUCCESS ? guard.result() : driver_.cuCtxSynchronize();
    // A context can be destroyed by a way that no door sees; nothing runs in it any more.
    if (is_dead(result))
      detach({reinterpret_cast<std::uintptr_t>(each.context)});
    else if (auto status = driver_.status(result, "cuCtxSynchronize"); !status)
      return status;
  }
  return {};
}

Status VmmBackend::register_host(void* memory, Bytes size) {
  return in_context("cuMemHostRegister", [&](const Lane&) {
    return driver_.cuMemHostRegister_v2(memory, size.value, CU_MEMHOSTREGISTER_PORTABLE);
  });
}

Status VmmBackend::unregister_host(void* memory) noexcept {
  if (lanes().count == 0) return {};
  return in_context("cuMemHostUnregister", [&](const Lane&) {
    const auto result = driver_.cuMemHostUnregister(memory);
    return result == CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED ? CUDA_SUCCESS : result;
  });
}

Result<MemoryInfo> VmmBackend::memory_info() {
  std::size_t free = 0;
  std::size_t total = 0;
  auto status = in_context("cuMemGetInfo", [&](const Lane&) { return driver_.cuMemGetInfo_v2(&free, &total); });
  if (!status) return fail(status.error());
  return MemoryInfo{{free}, {total}};
}

}  // namespace lowtide::cuda

// SPDX-License-Identifier: Apache-2.0
#include "backends/cuda/vmm_backend.hpp"

#include <algorithm>
#include <vector>

#include "backends/cuda/host_trial.hpp"

namespace lowtide::cuda {
namespace {

CUdeviceptr pointer(DeviceAddress address) { return static_cast<CUdeviceptr>(address.value); }

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

CUmemAllocationProp VmmBackend::properties() const noexcept {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = index_of(device());
  if (capabilities().export_fd) properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  properties.allocFlags.gpuDirectRDMACapable = capabilities().rdma ? 1 : 0;
  return properties;
}

Result<DeviceAddress> VmmBackend::reserve(Bytes size) {
  CUdeviceptr address = 0;
  const ContextGuard guard(driver(), nullptr);
  const auto result = driver().cuMemAddressReserve(&address, size.value, capabilities().granularity.value, 0, 0);
  if (result != CUDA_SUCCESS) return fail(driver().error(result, "cuMemAddressReserve", to_text(size).c_str()));
  return DeviceAddress{address};
}

Status VmmBackend::release_reservation(AddressRange range) {
  const ContextGuard guard(driver(), nullptr);
  return driver().status(driver().cuMemAddressFree(pointer(range.start), range.size.value), "cuMemAddressFree");
}

Result<PhysicalId> VmmBackend::create(AddressRange range) {
  const Bytes size = range.size;
  const auto wanted = properties();
  CUmemGenericAllocationHandle physical = 0;
  const ContextGuard guard(driver(), nullptr);
  const auto result = driver().cuMemCreate(&physical, size.value, &wanted, 0);
  if (result != CUDA_SUCCESS) return fail(driver().error(result, "cuMemCreate", to_text(size).c_str()));
  return PhysicalId{physical};
}

/// A node that nobody told: the first, which every host has.
CUmemLocation VmmBackend::host_location() const noexcept {
  CUmemLocation location{};
  location.type = CU_MEM_LOCATION_TYPE_HOST_NUMA;
  location.id = std::max(0, capabilities().host_node);
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
  const ContextGuard guard(driver(), nullptr);
  const auto result = driver().cuMemCreate(&physical, size.value, &wanted, 0);
  if (result == CUDA_SUCCESS) return PhysicalId{physical};
  const Error error = driver().error(result, "cuMemCreate", ("host memory, " + to_text(size)).c_str());
  if (error.code() != Code::device_memory) return fail(error);
  return fail(Error(Code::host_budget, error.native(), error.call(), error.message()));
}

Status VmmBackend::release(PhysicalId physical) {
  const ContextGuard guard(driver(), nullptr);
  return driver().status(driver().cuMemRelease(physical.value), "cuMemRelease");
}

Status VmmBackend::map(AddressRange range, PhysicalId physical) {
  const ContextGuard guard(driver(), nullptr);
  return driver().status(driver().cuMemMap(pointer(range.start), range.size.value, 0, physical.value, 0), "cuMemMap");
}

Status VmmBackend::unmap(AddressRange range) {
  const ContextGuard guard(driver(), nullptr);
  return driver().status(driver().cuMemUnmap(pointer(range.start), range.size.value), "cuMemUnmap");
}

Status VmmBackend::give_access(AddressRange range, std::span<const CUmemAccessDesc> access) const {
  const ContextGuard guard(driver(), nullptr);
  const auto result = driver().cuMemSetAccess(pointer(range.start), range.size.value, access.data(), access.size());
  return driver().status(result, "cuMemSetAccess");
}

Status VmmBackend::set_access(AddressRange range, std::span<const DeviceId> peers) {
  return give_access(range, access_of(device(), peers, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
}

Status VmmBackend::set_read_access(AddressRange range, std::span<const DeviceId> peers) {
  auto access = access_of(device(), peers, CU_MEM_ACCESS_FLAGS_PROT_READ);
  access.push_back({host_location(), CU_MEM_ACCESS_FLAGS_PROT_READWRITE});
  return give_access(range, access);
}

}  // namespace lowtide::cuda

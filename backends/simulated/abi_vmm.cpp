// SPDX-License-Identifier: Apache-2.0
#include "backends/simulated/simulator.hpp"

using namespace lowtide::sim;

namespace {

/// The simulated host has one node.
bool is_host(const CUmemLocation& location) {
  return location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA && location.id == 0;
}

bool is_location(const Simulator& simulator, const CUmemLocation& location) {
  return is_host(location) || (location.type == CU_MEM_LOCATION_TYPE_DEVICE && simulator.has_device(location.id));
}

/// Pinned memory of one of the devices, exportable as a file descriptor or not at all, or of the host.
CUresult check(const Simulator& simulator, const CUmemAllocationProp* properties) {
  if (properties == nullptr || properties->type != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_INVALID_VALUE;
  if (is_host(properties->location)) {
    return properties->requestedHandleTypes == CU_MEM_HANDLE_TYPE_NONE ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
  }
  if (properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_NOT_SUPPORTED;
  if (!simulator.has_device(properties->location.id)) return CUDA_ERROR_INVALID_DEVICE;
  const auto types = static_cast<unsigned>(properties->requestedHandleTypes);
  return (types & ~unsigned{CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR}) == 0 ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

}  // namespace

extern "C" {

CUresult cuMemGetAllocationGranularity(size_t* size, const CUmemAllocationProp* properties,
                                       CUmemAllocationGranularity_flags) {
  return with_driver(Function::cuMemGetAllocationGranularity, [&](Simulator& simulator) {
    if (size == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const auto result = check(simulator, properties);
    if (result == CUDA_SUCCESS) *size = granularity;
    return result;
  });
}

CUresult cuMemAddressReserve(CUdeviceptr* out, size_t size, size_t alignment, CUdeviceptr hint,
                             unsigned long long flags) {
  return with_driver(Function::cuMemAddressReserve, [&](Simulator& simulator) {
    if (flags != 0 || out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    Address address = 0;
    const auto result = simulator.memory.reserve(&address, size, alignment, hint);
    if (result == CUDA_SUCCESS) *out = address;
    return result;
  });
}

CUresult cuMemAddressFree(CUdeviceptr address, size_t size) {
  return with_driver(Function::cuMemAddressFree,
                     [&](Simulator& simulator) { return simulator.memory.release_reservation(address, size); });
}

CUresult cuMemCreate(CUmemGenericAllocationHandle* out, size_t size, const CUmemAllocationProp* properties,
                     unsigned long long flags) {
  return with_driver(Function::cuMemCreate, [&](Simulator& simulator) {
    if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
    if (const auto bad = check(simulator, properties); bad != CUDA_SUCCESS) return bad;
    return simulator.memory.create(out, size, *properties);
  });
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  return with_driver(Function::cuMemRelease, [&](Simulator& simulator) { return simulator.memory.release(handle); });
}

CUresult cuMemMap(CUdeviceptr address, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags) {
  return with_driver(Function::cuMemMap, [&](Simulator& simulator) {
    return flags == 0 ? simulator.memory.map(address, size, offset, handle) : CUDA_ERROR_INVALID_VALUE;
  });
}

CUresult cuMemUnmap(CUdeviceptr address, size_t size) {
  return with_driver(Function::cuMemUnmap, [&](Simulator& simulator) { return simulator.memory.unmap(address, size); });
}

CUresult cuMemSetAccess(CUdeviceptr address, size_t size, const CUmemAccessDesc* access, size_t count) {
  return with_driver(Function::cuMemSetAccess, [&](Simulator& simulator) {
    if (access == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; ++i) {
      if (!is_location(simulator, access[i].location)) return CUDA_ERROR_INVALID_DEVICE;
      if ((static_cast<unsigned>(access[i].flags) & ~3U) != 0) return CUDA_ERROR_INVALID_VALUE;
    }
    return simulator.memory.set_access(address, size, access, count);
  });
}

CUresult cuMemGetAccess(unsigned long long* flags, const CUmemLocation* location, CUdeviceptr address) {
  return with_driver(Function::cuMemGetAccess, [&](Simulator& simulator) {
    if (flags == nullptr || location == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (!is_location(simulator, *location)) return CUDA_ERROR_INVALID_DEVICE;
    return simulator.memory.get_access(flags, *location, address);
  });
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* out, void* address) {
  return with_driver(Function::cuMemRetainAllocationHandle, [&](Simulator& simulator) {
    return simulator.memory.retain_at(out, reinterpret_cast<Address>(address));
  });
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* out, CUmemGenericAllocationHandle handle) {
  return with_driver(Function::cuMemGetAllocationPropertiesFromHandle,
                     [&](Simulator& simulator) { return simulator.memory.properties_of(out, handle); });
}

CUresult cuMemExportToShareableHandle(void* out, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type,
                                      unsigned long long flags) {
  return with_driver(Function::cuMemExportToShareableHandle, [&](Simulator& simulator) {
    if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || flags != 0) return CUDA_ERROR_INVALID_VALUE;
    return simulator.memory.export_file(static_cast<int*>(out), handle);
  });
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* out, void* os_handle,
                                        CUmemAllocationHandleType type) {
  return with_driver(Function::cuMemImportFromShareableHandle, [&](Simulator& simulator) {
    if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_INVALID_VALUE;
    // The ABI passes the descriptor itself as the pointer.
    const auto file = static_cast<int>(reinterpret_cast<std::intptr_t>(os_handle));
    return simulator.memory.import_file(out, file, simulator.settings.devices);
  });
}

}  // extern "C"

// SPDX-License-Identifier: Apache-2.0
#include "backends/simulated/hip/runtime.hpp"

using namespace lowtide::sim::hip;

namespace {

CUmemLocation location_of(const hipMemLocation& location) {
  CUmemLocation to{};
  to.type = static_cast<CUmemLocationType>(location.type);
  to.id = location.id;
  return to;
}

CUmemAllocationProp properties_of(const hipMemAllocationProp& from) {
  CUmemAllocationProp to{};
  to.type = static_cast<CUmemAllocationType>(from.type);
  to.requestedHandleTypes = static_cast<CUmemAllocationHandleType>(from.requestedHandleType);
  to.location = location_of(from.location);
  to.allocFlags.compressionType = from.allocFlags.compressionType;
  to.allocFlags.gpuDirectRDMACapable = from.allocFlags.gpuDirectRDMACapable;
  to.allocFlags.usage = from.allocFlags.usage;
  return to;
}

hipMemAllocationProp properties_of(const CUmemAllocationProp& from) {
  hipMemAllocationProp to{};
  to.type = static_cast<hipMemAllocationType>(from.type);
  to.requestedHandleType = static_cast<hipMemAllocationHandleType>(from.requestedHandleTypes);
  to.location = {static_cast<hipMemLocationType>(from.location.type), from.location.id};
  to.allocFlags.compressionType = from.allocFlags.compressionType;
  to.allocFlags.gpuDirectRDMACapable = from.allocFlags.gpuDirectRDMACapable;
  to.allocFlags.usage = from.allocFlags.usage;
  return to;
}

/// Runs `call(driver, memory)`, unless the device has no virtual memory management or `given` misses an argument.
template <class Call>
hipError_t with_vmm(bool given, Call call) {
  return with_runtime([&](Runtime& runtime) {
    if (!runtime.virtual_memory().supported()) return CUDA_ERROR_NOT_SUPPORTED;
    return given ? call(runtime.driver(), runtime.virtual_memory()) : CUDA_ERROR_INVALID_VALUE;
  });
}

/// A call that answers with a handle.
template <class Call>
hipError_t get_handle(hipMemGenericAllocationHandle_t* out, bool given, Call call) {
  return with_vmm(out != nullptr && given, [&](const Driver& driver, VirtualMemory& memory) {
    CUmemGenericAllocationHandle handle = 0;
    const auto result = call(driver, memory, &handle);
    if (result == CUDA_SUCCESS) *out = reinterpret_cast<hipMemGenericAllocationHandle_t>(handle);
    return result;
  });
}

}  // namespace

extern "C" {

hipError_t hipMemGetAllocationGranularity(size_t* out, const hipMemAllocationProp* properties,
                                          hipMemAllocationGranularity_flags option) {
  return with_vmm(out != nullptr && properties != nullptr, [&](const Driver& driver, VirtualMemory&) {
    const auto wanted = properties_of(*properties);
    return driver.cuMemGetAllocationGranularity(out, &wanted, static_cast<CUmemAllocationGranularity_flags>(option));
  });
}

hipError_t hipMemAddressReserve(void** out, size_t size, size_t alignment, void* address, unsigned long long) {
  return with_vmm(out != nullptr, [&](const Driver&, VirtualMemory& memory) {
    CUdeviceptr start = 0;
    const auto result = memory.reserve(&start, size, alignment, address_of(address));
    if (result == CUDA_SUCCESS) *out = pointer_to(start);
    return result;
  });
}

hipError_t hipMemAddressFree(void* address, size_t size) {
  return with_vmm(
      true, [&](const Driver&, VirtualMemory& memory) { return memory.free_reservation(address_of(address), size); });
}

hipError_t hipMemCreate(hipMemGenericAllocationHandle_t* out, size_t size, const hipMemAllocationProp* properties,
                        unsigned long long) {
  return get_handle(out, properties != nullptr,
                    [&](const Driver&, VirtualMemory& memory, CUmemGenericAllocationHandle* handle) {
                      return memory.create(handle, size, properties_of(*properties));
                    });
}

hipError_t hipMemRelease(hipMemGenericAllocationHandle_t handle) {
  return with_vmm(true, [&](const Driver&, VirtualMemory& memory) { return memory.release(native(handle)); });
}

hipError_t hipMemMap(void* address, size_t size, size_t offset, hipMemGenericAllocationHandle_t handle,
                     unsigned long long) {
  return with_vmm(true, [&](const Driver&, VirtualMemory& memory) {
    return memory.map(address_of(address), size, offset, native(handle));
  });
}

hipError_t hipMemUnmap(void* address, size_t size) {
  return with_vmm(true, [&](const Driver&, VirtualMemory& memory) { return memory.unmap(address_of(address), size); });
}

hipError_t hipMemSetAccess(void* address, size_t size, const hipMemAccessDesc* access, size_t count) {
  return with_vmm(access != nullptr, [&](const Driver& driver, VirtualMemory&) {
    std::vector<CUmemAccessDesc> wanted(count);
    for (std::size_t i = 0; i < count; ++i) {
      wanted[i] = {location_of(access[i].location), static_cast<CUmemAccess_flags>(access[i].flags)};
    }
    return driver.cuMemSetAccess(address_of(address), size, wanted.data(), count);
  });
}

hipError_t hipMemGetAccess(unsigned long long* flags, const hipMemLocation* location, void* address) {
  return with_vmm(flags != nullptr && location != nullptr, [&](const Driver& driver, VirtualMemory&) {
    const auto place = location_of(*location);
    return driver.cuMemGetAccess(flags, &place, address_of(address));
  });
}

hipError_t hipMemRetainAllocationHandle(hipMemGenericAllocationHandle_t* out, void* address) {
  return get_handle(out, true, [&](const Driver&, VirtualMemory& memory, CUmemGenericAllocationHandle* handle) {
    return memory.retain_at(handle, address_of(address));
  });
}

hipError_t hipMemGetAllocationPropertiesFromHandle(hipMemAllocationProp* out, hipMemGenericAllocationHandle_t handle) {
  return with_vmm(out != nullptr, [&](const Driver& driver, VirtualMemory&) {
    CUmemAllocationProp properties{};
    const auto result = driver.cuMemGetAllocationPropertiesFromHandle(&properties, native(handle));
    if (result == CUDA_SUCCESS) *out = properties_of(properties);
    return result;
  });
}

hipError_t hipMemExportToShareableHandle(void* out, hipMemGenericAllocationHandle_t handle,
                                         hipMemAllocationHandleType type, unsigned long long flags) {
  return with_vmm(out != nullptr, [&](const Driver& driver, VirtualMemory&) {
    return driver.cuMemExportToShareableHandle(out, native(handle), static_cast<CUmemAllocationHandleType>(type),
                                               flags);
  });
}

hipError_t hipMemImportFromShareableHandle(hipMemGenericAllocationHandle_t* out, void* shared,
                                           hipMemAllocationHandleType type) {
  return get_handle(out, true, [&](const Driver& driver, VirtualMemory&, CUmemGenericAllocationHandle* handle) {
    return driver.cuMemImportFromShareableHandle(handle, shared, static_cast<CUmemAllocationHandleType>(type));
  });
}

}  // extern "C"

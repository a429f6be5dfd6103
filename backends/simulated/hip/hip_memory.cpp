// SPDX-License-Identifier: Apache-2.0
#include "backends/simulated/hip/runtime.hpp"

using namespace lowtide::sim::hip;

namespace {

/// Runs an allocating call with a place for the address. A request for nothing is answered with nothing.
template <class Allocate>
hipError_t allocate(void** out, std::size_t size, Allocate call) {
  return with_device([&](const Driver& driver) {
    CUdeviceptr address = 0;
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const auto result = size == 0 ? CUDA_SUCCESS : call(driver, &address);
    if (result == CUDA_SUCCESS) *out = pointer_to(address);
    return result;
  });
}

constexpr unsigned element_size = 4;

}  // namespace

extern "C" {

hipError_t hipMalloc(void** out, size_t size) {
  return allocate(out, size,
                  [&](const Driver& driver, CUdeviceptr* address) { return driver.cuMemAlloc_v2(address, size); });
}

hipError_t hipExtMallocWithFlags(void** out, size_t size, unsigned int) { return hipMalloc(out, size); }

hipError_t hipMallocManaged(void** out, size_t size, unsigned int flags) {
  return allocate(out, size, [&](const Driver& driver, CUdeviceptr* address) {
    return driver.cuMemAllocManaged(address, size, flags);
  });
}

hipError_t hipMallocPitch(void** out, size_t* pitch, size_t width, size_t height) {
  return allocate(out, width * height, [&](const Driver& driver, CUdeviceptr* address) {
    return driver.cuMemAllocPitch_v2(address, pitch, width, height, element_size);
  });
}

hipError_t hipMemAllocPitch(hipDeviceptr_t* out, size_t* pitch, size_t width, size_t height, unsigned int) {
  return hipMallocPitch(out, pitch, width, height);
}

hipError_t hipMalloc3D(hipPitchedPtr* out, hipExtent extent) {
  if (out == nullptr) return remember(hipErrorInvalidValue);
  out->xsize = extent.width;
  out->ysize = extent.height;
  return hipMallocPitch(&out->ptr, &out->pitch, extent.width, extent.height * extent.depth);
}

hipError_t hipMallocAsync(void** out, size_t size, hipStream_t stream) {
  return allocate(out, size, [&](const Driver& driver, CUdeviceptr* address) {
    return driver.cuMemAllocAsync(address, size, native(stream));
  });
}

hipError_t hipFree(void* memory) {
  return with_device(
      [&](const Driver& driver) { return memory == nullptr ? CUDA_SUCCESS : driver.cuMemFree_v2(address_of(memory)); });
}

hipError_t hipFreeAsync(void* memory, hipStream_t stream) {
  return forward(&Driver::cuMemFreeAsync, address_of(memory), native(stream));
}

hipError_t hipMemGetInfo(size_t* free, size_t* total) { return forward(&Driver::cuMemGetInfo_v2, free, total); }

hipError_t hipHostMalloc(void** out, size_t size, unsigned int flags) {
  return forward(&Driver::cuMemHostAlloc, out, size, flags & same_flags);
}

hipError_t hipHostAlloc(void** out, size_t size, unsigned int flags) { return hipHostMalloc(out, size, flags); }

hipError_t hipMallocHost(void** out, size_t size) { return hipHostMalloc(out, size, 0); }

hipError_t hipHostFree(void* memory) {
  return with_device(
      [&](const Driver& driver) { return memory == nullptr ? CUDA_SUCCESS : driver.cuMemFreeHost(memory); });
}

hipError_t hipFreeHost(void* memory) { return hipHostFree(memory); }

hipError_t hipHostRegister(void* memory, size_t size, unsigned int flags) {
  return forward(&Driver::cuMemHostRegister_v2, memory, size, flags & same_flags);
}

hipError_t hipHostUnregister(void* memory) { return forward(&Driver::cuMemHostUnregister, memory); }

hipError_t hipHostGetDevicePointer(void** out, void* memory, unsigned int flags) {
  return allocate(out, 1, [&](const Driver& driver, CUdeviceptr* address) {
    return driver.cuMemHostGetDevicePointer_v2(address, memory, flags);
  });
}

}  // extern "C"

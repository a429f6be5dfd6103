// SPDX-License-Identifier: Apache-2.0
#include "backends/simulated/cudart/runtime.hpp"

using lowtide::sim::Driver;
using lowtide::sim::with_runtime;

namespace {

CUdeviceptr address_of(const void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }

CUresult copy(const Driver& driver, void* to, const void* from, size_t size, cudaMemcpyKind kind) {
  switch (kind) {
    case cudaMemcpyHostToDevice: return driver.cuMemcpyHtoD(address_of(to), from, size);
    case cudaMemcpyDeviceToHost: return driver.cuMemcpyDtoH(to, address_of(from), size);
    case cudaMemcpyDeviceToDevice: return driver.cuMemcpyDtoD(address_of(to), address_of(from), size);
    default: return driver.cuMemcpy(address_of(to), address_of(from), size);
  }
}

CUresult copy_async(const Driver& driver, void* to, const void* from, size_t size, cudaMemcpyKind kind,
                    CUstream stream) {
  switch (kind) {
    case cudaMemcpyHostToDevice: return driver.cuMemcpyHtoDAsync(address_of(to), from, size, stream);
    case cudaMemcpyDeviceToHost: return driver.cuMemcpyDtoHAsync(to, address_of(from), size, stream);
    case cudaMemcpyDeviceToDevice: return driver.cuMemcpyDtoDAsync(address_of(to), address_of(from), size, stream);
    default: return driver.cuMemcpyAsync(address_of(to), address_of(from), size, stream);
  }
}

/// Runs an allocating call with a place for the address.
template <class Allocate>
cudaError_t allocate(void** out, Allocate call) {
  return with_runtime([&](const Driver& driver) {
    CUdeviceptr address = 0;
    const auto result = out == nullptr ? CUDA_ERROR_INVALID_VALUE : call(driver, &address);
    if (result == CUDA_SUCCESS) *out = reinterpret_cast<void*>(address);
    return result;
  });
}

}  // namespace

extern "C" {

cudaError_t cudaMalloc(void** out, size_t size) {
  return allocate(out, [&](const Driver& driver, CUdeviceptr* address) {
    // The runtime answers a request for nothing with nothing, where the driver refuses it.
    return size == 0 ? CUDA_SUCCESS : driver.cuMemAlloc(address, size);
  });
}

cudaError_t cudaMallocPitch(void** out, size_t* pitch, size_t width, size_t height) {
  return allocate(out, [&](const Driver& driver, CUdeviceptr* address) {
    return driver.cuMemAllocPitch(address, pitch, width, height, 4);
  });
}

cudaError_t cudaMallocManaged(void** out, size_t size, unsigned int flags) {
  return allocate(
      out, [&](const Driver& driver, CUdeviceptr* address) { return driver.cuMemAllocManaged(address, size, flags); });
}

cudaError_t cudaMallocAsync(void** out, size_t size, cudaStream_t stream) {
  return allocate(out, [&](const Driver& driver, CUdeviceptr* address) {
    return size == 0 ? CUDA_SUCCESS : driver.cuMemAllocAsync(address, size, stream);
  });
}

cudaError_t cudaFree(void* memory) {
  return with_runtime(
      [&](const Driver& driver) { return memory == nullptr ? CUDA_SUCCESS : driver.cuMemFree(address_of(memory)); });
}

cudaError_t cudaFreeAsync(void* memory, cudaStream_t stream) {
  return with_runtime([&](const Driver& driver) {
    return memory == nullptr ? CUDA_SUCCESS : driver.cuMemFreeAsync(address_of(memory), stream);
  });
}

cudaError_t cudaHostAlloc(void** out, size_t size, unsigned int flags) {
  return with_runtime([&](const Driver& driver) { return driver.cuMemHostAlloc(out, size, flags); });
}

cudaError_t cudaMallocHost(void** out, size_t size) { return cudaHostAlloc(out, size, 0); }

cudaError_t cudaFreeHost(void* memory) {
  return with_runtime(
      [&](const Driver& driver) { return memory == nullptr ? CUDA_SUCCESS : driver.cuMemFreeHost(memory); });
}

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  return with_runtime([&](const Driver& driver) { return driver.cuMemGetInfo(free, total); });
}

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t* out, void* memory) {
  return with_runtime([&](const Driver& driver) {
    static_assert(sizeof(CUipcMemHandle) == sizeof(cudaIpcMemHandle_t));
    return driver.cuIpcGetMemHandle(reinterpret_cast<CUipcMemHandle*>(out), address_of(memory));
  });
}

cudaError_t cudaMemcpy(void* to, const void* from, size_t size, cudaMemcpyKind kind) {
  return with_runtime([&](const Driver& driver) { return copy(driver, to, from, size, kind); });
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t size, cudaMemcpyKind kind, cudaStream_t stream) {
  return with_runtime([&](const Driver& driver) { return copy_async(driver, to, from, size, kind, stream); });
}

cudaError_t cudaMemset(void* to, int value, size_t size) {
  return with_runtime(
      [&](const Driver& driver) { return driver.cuMemsetD8(address_of(to), static_cast<unsigned char>(value), size); });
}

cudaError_t cudaMemsetAsync(void* to, int value, size_t size, cudaStream_t stream) {
  return with_runtime([&](const Driver& driver) {
    return driver.cuMemsetD8Async(address_of(to), static_cast<unsigned char>(value), size, stream);
  });
}

}  // extern "C"

// SPDX-License-Identifier: Apache-2.0
//
// A libcuda.so.1 of a few functions, enough for the doors to be walked through. Linked with -Bsymbolic, as a vendor's
// library may be.
#include <cstdlib>
#include <cstring>

#include "tests/interpose/cuda_abi.hpp"
#include "tests/interpose/fake_driver.hpp"

using namespace lowtide::test;

namespace {

constexpr CUresult ok = CUDA_SUCCESS;

int calls = 0;
CUstream capturing = nullptr;

// The same function as cuMemFreeAsync under another address: cuGetProcAddress may answer what dlsym does not.
CUresult free_async_twin(CUdeviceptr, CUstream) { return twin_result; }

bool is_driver_address(CUdeviceptr address) { return address >= driver_address && address < driver_address + 0x10000; }

}  // namespace

extern "C" {

int fake_driver_calls() { return calls; }

CUresult cuInit(unsigned) {
  ++calls;
  return ok;
}

CUresult cuDeviceGetCount(int* count) {
  *count = 1;
  return ok;
}

CUresult cuMemAlloc_v2(CUdeviceptr* pointer, size_t) {
  ++calls;
  *pointer = driver_address;
  return ok;
}

CUresult cuMemAllocPitch_v2(CUdeviceptr* pointer, size_t* pitch, size_t width, size_t, unsigned) {
  ++calls;
  *pointer = driver_address;
  *pitch = width;
  return ok;
}

CUresult cuMemFree_v2(CUdeviceptr address) {
  ++calls;
  return is_driver_address(address) ? ok : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemFreeAsync(CUdeviceptr, CUstream) { return ok; }
CUresult cuMemFreeAsync_ptsz(CUdeviceptr, CUstream) { return ok; }

CUresult cuMemcpyHtoD_v2(CUdeviceptr, const void*, size_t) {
  ++calls;
  return ok;
}

// Answers whether all eleven arguments arrived: six in registers on x86-64, the rest on the stack.
CUresult cuLaunchKernel(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                        unsigned bz, unsigned shared, CUstream stream, void** parameters, void** extra) {
  ++calls;
  const bool all = function == reinterpret_cast<CUfunction>(1) && gx == 2 && gy == 3 && gz == 4 && bx == 5 && by == 6 &&
                   bz == 7 && shared == 8 && stream == reinterpret_cast<CUstream>(9) &&
                   parameters == reinterpret_cast<void**>(10) && extra == reinterpret_cast<void**>(11);
  return all ? ok : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t, const CUmemAllocationProp*, unsigned long long) {
  *handle = 77;
  return ok;
}

/// Answers an error for the second and third handle.
CUresult cuMemRelease(CUmemGenericAllocationHandle handle) { return handle == 77 ? ok : CUDA_ERROR_INVALID_VALUE; }
CUresult cuMemAllocAsync(CUdeviceptr* pointer, size_t bytes, CUstream) {
  if (bytes == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  *pointer = driver_address;
  return ok;
}
CUresult cuMemAddressReserve(CUdeviceptr* pointer, size_t, size_t, CUdeviceptr, unsigned long long) {
  *pointer = driver_address;
  return ok;
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr* base, size_t* size, CUdeviceptr address) {
  if (!is_driver_address(address)) return CUDA_ERROR_INVALID_VALUE;
  *base = driver_address;
  *size = 0x10000;
  return ok;
}

CUresult cuPointerGetAttribute(void* data, CUpointer_attribute attribute, CUdeviceptr) {
  if (attribute != CU_POINTER_ATTRIBUTE_MEMORY_TYPE) return CUDA_ERROR_INVALID_VALUE;
  *static_cast<unsigned*>(data) = CU_MEMORYTYPE_DEVICE;
  return ok;
}

CUresult cuPointerGetAttributes(unsigned count, CUpointer_attribute*, void** data, CUdeviceptr) {
  for (unsigned i = 0; i < count; ++i) std::memset(data[i], 0, sizeof(unsigned));
  return ok;
}

CUresult cuIpcGetMemHandle(CUipcMemHandle*, CUdeviceptr) { return ok; }
CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle*, void*) { return ok; }

CUresult cuCtxCreate_v2(CUcontext* context, unsigned, CUdevice) {
  *context = reinterpret_cast<CUcontext>(0x55);
  return ok;
}
CUresult cuCtxDestroy_v2(CUcontext) { return ok; }
CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice) {
  *context = reinterpret_cast<CUcontext>(0x66);
  return ok;
}
CUresult cuDevicePrimaryCtxReset_v2(CUdevice) { return ok; }
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice) { return ok; }
CUresult cuCtxEnablePeerAccess(CUcontext, unsigned flags) { return flags == 0 ? ok : CUDA_ERROR_INVALID_VALUE; }
CUresult cuCtxDisablePeerAccess(CUcontext) { return ok; }

CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus* status) {
  *status = stream == capturing ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
  return ok;
}
CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode) {
  capturing = stream;
  return ok;
}
// NULL for the graph stands for an end call that fails and leaves the capture as it is.
CUresult cuStreamEndCapture(CUstream stream, CUgraph* graph) {
  if (stream != capturing) return CUDA_ERROR_ILLEGAL_STATE;
  if (graph == nullptr) return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
  capturing = nullptr;
  return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
}
CUresult cuStreamDestroy_v2(CUstream) { return ok; }

CUresult cuGetProcAddress(const char*, void**, int, cuuint64_t);

CUresult cuGetProcAddress_v2(const char* symbol, void** function, int version, cuuint64_t,
                             CUdriverProcAddressQueryResult* status) {
  struct Known {
    const char* name;
    int since;
    void* address;
  };
  static const Known known[] = {
      {"cuInit", 2000, reinterpret_cast<void*>(&cuInit)},
      {"cuDeviceGetCount", 2000, reinterpret_cast<void*>(&cuDeviceGetCount)},
      {"cuMemAlloc", 3020, reinterpret_cast<void*>(&cuMemAlloc_v2)},
      {"cuMemFree", 3020, reinterpret_cast<void*>(&cuMemFree_v2)},
      {"cuMemFreeAsync", 11020, reinterpret_cast<void*>(&free_async_twin)},
      {"cuGetProcAddress", 12000, reinterpret_cast<void*>(&cuGetProcAddress_v2)},
      {"cuGetProcAddress", 11030, reinterpret_cast<void*>(&cuGetProcAddress)},
  };
  *function = nullptr;
  if (*symbol == '\0') return ok;
  for (const Known& entry : known) {
    if (std::strcmp(entry.name, symbol) != 0 || version < entry.since) continue;
    *function = entry.address;
    if (status != nullptr) *status = CU_GET_PROC_ADDRESS_SUCCESS;
    return ok;
  }
  if (status != nullptr) *status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  return CUDA_ERROR_NOT_FOUND;
}

CUresult cuGetProcAddress(const char* symbol, void** function, int version, cuuint64_t flags) {
  return cuGetProcAddress_v2(symbol, function, version, flags, nullptr);
}

}  // extern "C"

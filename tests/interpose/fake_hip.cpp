// SPDX-License-Identifier: Apache-2.0
//
// A libamdhip64.so of a few functions with the vendor's versions, enough for the doors to be walked through.
#include "tests/interpose/fake_hip.hpp"

#include <dlfcn.h>

using namespace lowtide::test;

namespace {

int calls = 0;
hipError_t last_error = hipSuccess;
hipStream_t capturing = nullptr;

hipError_t counted(hipError_t result = hipSuccess) {
  ++calls;
  return result;
}

bool is(dim3 size, unsigned x, unsigned y, unsigned z) { return size.x == x && size.y == y && size.z == z; }

}  // namespace

extern "C" {

int fake_hip_calls() { return calls; }
void fake_hip_fail() { last_error = hipErrorInvalidValue; }

hipError_t hipInit(unsigned) { return counted(); }
hipError_t hipGetDeviceCount(int* count) {
  *count = 1;
  return counted();
}
hipError_t hipGetDevice(int* device) {
  *device = 2;
  return hipSuccess;
}
hipError_t hipRuntimeGetVersion(int* version) {
  *version = 60100000;
  return hipSuccess;
}
hipError_t hipPeekAtLastError() { return last_error; }
hipError_t hipGetLastError() {
  const hipError_t error = last_error;
  last_error = hipSuccess;
  return error;
}

hipError_t hipMalloc(void** pointer, size_t) {
  *pointer = runtime_address;
  return counted();
}
hipError_t hipExtMallocWithFlags(void** pointer, size_t, unsigned) {
  *pointer = runtime_address;
  return counted();
}
hipError_t hipMalloc3D(hipPitchedPtr* memory, hipExtent extent) {
  *memory = {runtime_address, extent.width, extent.width, extent.height};
  return counted();
}
hipError_t hipFree(void* pointer) { return counted(pointer == runtime_address ? hipSuccess : hipErrorInvalidValue); }
hipError_t hipHostFree(void* pointer) { return hipFree(pointer); }
hipError_t hipMemPtrGetInfo(void*, size_t*) { return counted(hipErrorInvalidValue); }
hipError_t hipMemGetAddressRange(hipDeviceptr_t*, size_t*, hipDeviceptr_t) { return counted(hipErrorInvalidValue); }
hipError_t hipPointerGetAttribute(void*, hipPointer_attribute, hipDeviceptr_t) { return counted(hipErrorInvalidValue); }
hipError_t hipPointerGetAttributes(hipPointerAttribute_t*, const void*) { return counted(hipErrorInvalidValue); }
hipError_t hipIpcGetMemHandle(hipIpcMemHandle_t*, void*) { return counted(); }
hipError_t hipDeviceReset() { return counted(); }
hipError_t hipDeviceEnablePeerAccess(int, unsigned) { return counted(); }

hipError_t hipStreamIsCapturing(hipStream_t stream, hipStreamCaptureStatus* status) {
  *status = stream == capturing ? hipStreamCaptureStatusActive : hipStreamCaptureStatusNone;
  return hipSuccess;
}
hipError_t hipStreamBeginCapture(hipStream_t stream, hipStreamCaptureMode) {
  capturing = stream;
  return counted();
}
hipError_t hipStreamEndCapture(hipStream_t, hipGraph_t*) {
  capturing = nullptr;
  return counted();
}

// These answer whether what they were given arrived: in registers, on the stack, and as aggregates of both kinds.
hipError_t hipLaunchKernel(const void* function, dim3 grid, dim3 block, void** arguments, size_t shared,
                           hipStream_t stream) {
  const bool whole = function == launched && is(grid, 1, 2, 3) && is(block, 4, 5, 6) && shared == 7 &&
                     arguments == reinterpret_cast<void**>(8) && stream == reinterpret_cast<hipStream_t>(9);
  return counted(whole ? hipSuccess : hipErrorInvalidValue);
}
hipError_t hipLaunchKernel_spt(const void*, dim3 grid, dim3 block, void**, size_t shared, hipStream_t) {
  return counted(is(grid, 1, 2, 3) && is(block, 4, 5, 6) && shared == 7 ? hipSuccess : hipErrorInvalidValue);
}
hipError_t hipMemset3D(hipPitchedPtr memory, int value, hipExtent extent) {
  const bool whole = memory.pitch == 1 && memory.xsize == 2 && memory.ysize == 3 && value == 4 && extent.width == 5 &&
                     extent.height == 6 && extent.depth == 7;
  return counted(whole ? hipSuccess : hipErrorInvalidValue);
}

hipError_t hipGetProcAddress(const char* symbol, void** function, int, uint64_t, void*) {
  static void* const own = ::dlopen("libamdhip64.so.6", RTLD_NOW | RTLD_NOLOAD);
  *function = ::dlsym(own, symbol);
  return *function == nullptr ? hipErrorInvalidValue : hipSuccess;
}

// By the name that it has as a C++ function.
hipError_t _Z24hipExtModuleLaunchKernelP18ihipModuleSymbol_tjjjjjjmP12ihipStream_tPPvS4_P11ihipEvent_tS6_j(
    hipFunction_t, uint32_t gx, uint32_t gy, uint32_t gz, uint32_t bx, uint32_t by, uint32_t bz, size_t shared,
    hipStream_t, void**, void**, hipEvent_t, hipEvent_t stop, uint32_t flags) {
  const bool whole = gx == 1 && gy == 2 && gz == 3 && bx == 4 && by == 5 && bz == 6 && shared == 7 &&
                     stop == reinterpret_cast<hipEvent_t>(8) && flags == 9;
  return counted(whole ? hipSuccess : hipErrorInvalidValue);
}

}  // extern "C"

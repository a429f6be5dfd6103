// SPDX-License-Identifier: Apache-2.0
//
// HIP's types and functions as the doors declare them, beside those of the vendor's own header: this is compiled with
// each, and what each makes of it must be the same. With the vendor's header a function of another type does not
// compile at all.
#ifdef VENDOR_HEADER
#include <hip/hip_runtime_api.h>
// After it.
#include <hip/hip_ext.h>

using ExtModuleLaunch = decltype(&hipExtModuleLaunchKernel);
// A C++ function in this header, and a C function in later ones.
#define hipExtModuleLaunchKernel c_hipExtModuleLaunchKernel
#endif

#include <cstddef>
#include <type_traits>

#include "shim/preload/hip_functions.h"
#include "tests/interpose/hip_declarations.hpp"

#ifdef VENDOR_HEADER
static_assert(
    std::is_same_v<
        ExtModuleLaunch,
        decltype(&_Z24hipExtModuleLaunchKernelP18ihipModuleSymbol_tjjjjjjmP12ihipStream_tPPvS4_P11ihipEvent_tS6_j)>);
#endif

namespace lowtide::test {

#ifdef VENDOR_HEADER
std::span<const std::size_t> vendors_hip() {
#else
std::span<const std::size_t> our_hip() {
#endif
  static const std::size_t facts[] = {
      hipSuccess,
      hipErrorInvalidValue,
      hipErrorOutOfMemory,
      hipErrorNotInitialized,
      hipErrorSharedObjectSymbolNotFound,
      hipErrorUnknown,
      hipMemcpyDefault,
      hipStreamCaptureModeRelaxed,
      hipStreamCaptureStatusActive,
      HIP_POINTER_ATTRIBUTE_MEMORY_TYPE,
      HIP_POINTER_ATTRIBUTE_DEVICE_POINTER,
      HIP_POINTER_ATTRIBUTE_IS_MANAGED,
      HIP_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
      HIP_POINTER_ATTRIBUTE_IS_LEGACY_HIP_IPC_CAPABLE,
      HIP_POINTER_ATTRIBUTE_RANGE_START_ADDR,
      HIP_POINTER_ATTRIBUTE_RANGE_SIZE,
      HIP_POINTER_ATTRIBUTE_MAPPED,
      reinterpret_cast<std::size_t>(hipStreamPerThread),
      sizeof(dim3),
      offsetof(dim3, z),
      sizeof(hipExtent),
      offsetof(hipExtent, depth),
      sizeof(hipPitchedPtr),
      offsetof(hipPitchedPtr, pitch),
      offsetof(hipPitchedPtr, xsize),
      offsetof(hipPitchedPtr, ysize),
      sizeof(hipIpcMemHandle_t),
      sizeof(hipPointerAttribute_t),
      offsetof(hipPointerAttribute_t, memoryType),
      offsetof(hipPointerAttribute_t, device),
      offsetof(hipPointerAttribute_t, devicePointer),
      offsetof(hipPointerAttribute_t, hostPointer),
      offsetof(hipPointerAttribute_t, isManaged),
      offsetof(hipPointerAttribute_t, allocationFlags),
      std::is_trivially_copyable_v<dim3>,
      std::is_trivially_copyable_v<hipPitchedPtr>,
  };
  return facts;
}

}  // namespace lowtide::test

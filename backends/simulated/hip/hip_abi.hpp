// SPDX-License-Identifier: Apache-2.0
#pragma once

// Every declared function is an export of this library.
#pragma GCC visibility push(default)
#include "backends/hip/hip_declarations.h"
#pragma GCC visibility pop

#include "backends/simulated/hip/driver.hpp"

namespace lowtide::sim::hip {

// The two vendors' handles are each other's: an opaque pointer, with the same numbers for the default streams.
inline CUdeviceptr address_of(const void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }
inline void* pointer_to(CUdeviceptr address) { return reinterpret_cast<void*>(address); }
inline CUstream native(hipStream_t stream) { return reinterpret_cast<CUstream>(stream); }
inline CUevent native(hipEvent_t event) { return reinterpret_cast<CUevent>(event); }
inline CUgraph native(hipGraph_t graph) { return reinterpret_cast<CUgraph>(graph); }
inline CUgraphExec native(hipGraphExec_t graph) { return reinterpret_cast<CUgraphExec>(graph); }
inline CUmodule native(hipModule_t module) { return reinterpret_cast<CUmodule>(module); }
inline CUfunction native(hipFunction_t function) { return reinterpret_cast<CUfunction>(function); }
inline CUmemGenericAllocationHandle native(hipMemGenericAllocationHandle_t handle) {
  return reinterpret_cast<CUmemGenericAllocationHandle>(handle);
}

// HIP's flags beyond these have no counterpart, and say nothing that a program could see here.
constexpr unsigned same_flags = 7;

}  // namespace lowtide::sim::hip

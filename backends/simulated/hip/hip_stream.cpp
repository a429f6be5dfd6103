// SPDX-License-Identifier: Apache-2.0
#include "backends/simulated/hip/runtime.hpp"

using namespace lowtide::sim::hip;

namespace {

/// Runs a call that makes something, with a place for the driver's handle of it.
template <class Handle, class Made, class Call>
hipError_t make(Made* out, Call call) {
  return with_device([&](const Driver& driver) {
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    Handle made = nullptr;
    const auto result = call(driver, &made);
    if (result == CUDA_SUCCESS) *out = reinterpret_cast<Made>(made);
    return result;
  });
}

}  // namespace

extern "C" {

hipError_t hipStreamCreateWithFlags(hipStream_t* out, unsigned int flags) {
  return make<CUstream>(
      out, [&](const Driver& driver, CUstream* stream) { return driver.cuStreamCreate(stream, flags & same_flags); });
}

hipError_t hipStreamCreate(hipStream_t* out) { return hipStreamCreateWithFlags(out, 0); }

hipError_t hipStreamCreateWithPriority(hipStream_t* out, unsigned int flags, int priority) {
  return make<CUstream>(out, [&](const Driver& driver, CUstream* stream) {
    return driver.cuStreamCreateWithPriority(stream, flags & same_flags, priority);
  });
}

hipError_t hipStreamDestroy(hipStream_t stream) { return forward(&Driver::cuStreamDestroy_v2, native(stream)); }

hipError_t hipStreamSynchronize(hipStream_t stream) { return forward(&Driver::cuStreamSynchronize, native(stream)); }

hipError_t hipStreamQuery(hipStream_t stream) { return forward(&Driver::cuStreamQuery, native(stream)); }

hipError_t hipStreamWaitEvent(hipStream_t stream, hipEvent_t event, unsigned int flags) {
  return forward(&Driver::cuStreamWaitEvent, native(stream), native(event), flags);
}

hipError_t hipEventCreateWithFlags(hipEvent_t* out, unsigned int flags) {
  return make<CUevent>(
      out, [&](const Driver& driver, CUevent* event) { return driver.cuEventCreate(event, flags & same_flags); });
}

hipError_t hipEventCreate(hipEvent_t* out) { return hipEventCreateWithFlags(out, 0); }

hipError_t hipEventDestroy(hipEvent_t event) { return forward(&Driver::cuEventDestroy_v2, native(event)); }

hipError_t hipEventRecord(hipEvent_t event, hipStream_t stream) {
  return forward(&Driver::cuEventRecord, native(event), native(stream));
}

hipError_t hipEventQuery(hipEvent_t event) { return forward(&Driver::cuEventQuery, native(event)); }

hipError_t hipEventSynchronize(hipEvent_t event) { return forward(&Driver::cuEventSynchronize, native(event)); }

hipError_t hipEventElapsedTime(float* out, hipEvent_t start, hipEvent_t end) {
  return forward(&Driver::cuEventElapsedTime, out, native(start), native(end));
}

hipError_t hipThreadExchangeStreamCaptureMode(hipStreamCaptureMode* mode) {
  return with_runtime([&](Runtime& runtime) {
    if (mode == nullptr) return CUDA_ERROR_INVALID_VALUE;
    auto exchanged = static_cast<CUstreamCaptureMode>(*mode);
    const auto result = runtime.driver().cuThreadExchangeStreamCaptureMode(&exchanged);
    *mode = static_cast<hipStreamCaptureMode>(exchanged);
    return result;
  });
}

hipError_t hipStreamBeginCapture(hipStream_t stream, hipStreamCaptureMode mode) {
  return forward(&Driver::cuStreamBeginCapture_v2, native(stream), static_cast<CUstreamCaptureMode>(mode));
}

hipError_t hipStreamEndCapture(hipStream_t stream, hipGraph_t* out) {
  return make<CUgraph>(
      out, [&](const Driver& driver, CUgraph* graph) { return driver.cuStreamEndCapture(native(stream), graph); });
}

hipError_t hipStreamIsCapturing(hipStream_t stream, hipStreamCaptureStatus* out) {
  return with_device([&](const Driver& driver) {
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    auto status = CU_STREAM_CAPTURE_STATUS_NONE;
    const auto result = driver.cuStreamIsCapturing(native(stream), &status);
    *out = static_cast<hipStreamCaptureStatus>(status);
    return result;
  });
}

hipError_t hipGraphInstantiateWithFlags(hipGraphExec_t* out, hipGraph_t graph, unsigned long long flags) {
  return make<CUgraphExec>(out, [&](const Driver& driver, CUgraphExec* made) {
    return driver.cuGraphInstantiateWithFlags(made, native(graph), flags);
  });
}

hipError_t hipGraphInstantiate(hipGraphExec_t* out, hipGraph_t graph, hipGraphNode_t*, char*, size_t) {
  return hipGraphInstantiateWithFlags(out, graph, 0);
}

hipError_t hipGraphLaunch(hipGraphExec_t graph, hipStream_t stream) {
  return forward(&Driver::cuGraphLaunch, native(graph), native(stream));
}

hipError_t hipGraphExecDestroy(hipGraphExec_t graph) { return forward(&Driver::cuGraphExecDestroy, native(graph)); }

hipError_t hipGraphDestroy(hipGraph_t graph) { return forward(&Driver::cuGraphDestroy, native(graph)); }

hipError_t hipModuleLoadData(hipModule_t* out, const void* image) {
  return make<CUmodule>(out,
                        [&](const Driver& driver, CUmodule* module) { return driver.cuModuleLoadData(module, image); });
}

hipError_t hipModuleUnload(hipModule_t module) { return forward(&Driver::cuModuleUnload, native(module)); }

hipError_t hipModuleGetFunction(hipFunction_t* out, hipModule_t module, const char* name) {
  return make<CUfunction>(out, [&](const Driver& driver, CUfunction* function) {
    return driver.cuModuleGetFunction(function, native(module), name);
  });
}

hipError_t hipModuleGetGlobal(hipDeviceptr_t* out, size_t* size, hipModule_t module, const char* name) {
  return with_device([&](const Driver& driver) {
    CUdeviceptr address = 0;
    const auto result = driver.cuModuleGetGlobal_v2(&address, size, native(module), name);
    if (result == CUDA_SUCCESS && out != nullptr) *out = pointer_to(address);
    return result;
  });
}

hipError_t hipModuleLaunchKernel(hipFunction_t function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
                                 unsigned int block_x, unsigned int block_y, unsigned int block_z,
                                 unsigned int shared_bytes, hipStream_t stream, void** parameters, void** extra) {
  if (extra != nullptr) return remember(hipErrorNotSupported);  // its end mark is not CUDA's
  return forward(&Driver::cuLaunchKernel, native(function), grid_x, grid_y, grid_z, block_x, block_y, block_z,
                 shared_bytes, native(stream), parameters, extra);
}

}  // extern "C"

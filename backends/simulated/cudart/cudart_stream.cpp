// SPDX-License-Identifier: Apache-2.0
#include "backends/simulated/cudart/runtime.hpp"

using lowtide::sim::Driver;
using lowtide::sim::with_runtime;

extern "C" {

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* out, unsigned int flags) {
  return with_runtime([&](const Driver& driver) { return driver.cuStreamCreate(out, flags); });
}

cudaError_t cudaStreamCreate(cudaStream_t* out) { return cudaStreamCreateWithFlags(out, cudaStreamDefault); }

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return with_runtime([&](const Driver& driver) { return driver.cuStreamDestroy(stream); });
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return with_runtime([&](const Driver& driver) { return driver.cuStreamSynchronize(stream); });
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  return with_runtime([&](const Driver& driver) { return driver.cuStreamQuery(stream); });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags) {
  return with_runtime([&](const Driver& driver) { return driver.cuStreamWaitEvent(stream, event, flags); });
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* out, unsigned int flags) {
  return with_runtime([&](const Driver& driver) { return driver.cuEventCreate(out, flags); });
}

cudaError_t cudaEventCreate(cudaEvent_t* out) { return cudaEventCreateWithFlags(out, cudaEventDefault); }

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return with_runtime([&](const Driver& driver) { return driver.cuEventRecord(event, stream); });
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return with_runtime([&](const Driver& driver) { return driver.cuEventSynchronize(event); });
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return with_runtime([&](const Driver& driver) { return driver.cuEventDestroy(event); });
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  return with_runtime([&](const Driver& driver) {
    return driver.cuStreamBeginCapture(stream, static_cast<CUstreamCaptureMode>(mode));
  });
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* out) {
  return with_runtime([&](const Driver& driver) { return driver.cuStreamEndCapture(stream, out); });
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* out) {
  return with_runtime([&](const Driver& driver) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    const auto result = driver.cuStreamIsCapturing(stream, &status);
    *out = static_cast<cudaStreamCaptureStatus>(status);
    return result;
  });
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* out, cudaGraph_t graph, unsigned long long flags) {
  return with_runtime([&](const Driver& driver) { return driver.cuGraphInstantiateWithFlags(out, graph, flags); });
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
  return with_runtime([&](const Driver& driver) { return driver.cuGraphLaunch(graph, stream); });
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
  return with_runtime([&](const Driver& driver) { return driver.cuGraphExecDestroy(graph); });
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  return with_runtime([&](const Driver& driver) { return driver.cuGraphDestroy(graph); });
}

}  // extern "C"

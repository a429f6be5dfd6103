// SPDX-License-Identifier: Apache-2.0
#include "backends/simulated/simulator.hpp"

using namespace lowtide::sim;

namespace {

CUresult begin(Function function, CUstream handle, CUstreamCaptureMode mode) {
  return in_stream(function, handle, [&](Simulator& simulator, const StreamPtr& stream) {
    if (mode < CU_STREAM_CAPTURE_MODE_GLOBAL || mode > CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_ERROR_INVALID_VALUE;
    const std::lock_guard lock(simulator.monitor.mutex);
    return simulator.captures.begin(stream, mode, simulator.graphs.reserve());
  });
}

CUresult end(Function function, CUstream handle, CUgraph* out) {
  return in_stream(function, handle, [&](Simulator& simulator, const StreamPtr& stream) {
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *out = nullptr;
    const std::lock_guard lock(simulator.monitor.mutex);
    CapturePtr capture;
    const auto result = simulator.captures.end(stream, capture);
    if (result != CUDA_SUCCESS) return result;
    simulator.graphs.add_as(capture->handle, capture->graph);
    *out = capture->handle;
    return CUDA_SUCCESS;
  });
}

CUstreamCaptureStatus status_of(const Stream& stream) {
  if (!stream.capture) return CU_STREAM_CAPTURE_STATUS_NONE;
  return stream.capture->valid ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_INVALIDATED;
}

CUresult capture_info(Function function, CUstream handle, CUstreamCaptureStatus* status, cuuint64_t* id,
                      CUgraph* graph) {
  return in_stream(function, handle, [&](Simulator& simulator, const StreamPtr& stream) {
    if (status == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const std::lock_guard lock(simulator.monitor.mutex);
    if (const auto implicit = Captures::check_legacy(stream); implicit != CUDA_SUCCESS) return implicit;
    *status = status_of(*stream);
    if (!stream->capture) return CUDA_SUCCESS;
    if (id != nullptr) *id = stream->capture->id;
    if (graph != nullptr) *graph = stream->capture->handle;
    return CUDA_SUCCESS;
  });
}

/// The nodes of a capture are not shown one by one.
void put_no_dependencies(const CUgraphNode** dependencies, const CUgraphEdgeData** edges, std::size_t* count) {
  if (dependencies != nullptr) *dependencies = nullptr;
  if (edges != nullptr) *edges = nullptr;
  if (count != nullptr) *count = 0;
}

CUresult instantiate(Function function, CUgraphExec* out, CUgraph handle) {
  return with_context(function, [&](Simulator& simulator, const ContextPtr&) {
    const std::lock_guard lock(simulator.monitor.mutex);
    const auto graph = simulator.graphs.find(handle);
    if (out == nullptr || !graph) return CUDA_ERROR_INVALID_VALUE;
    *out = simulator.executables.add(std::make_shared<Graph>(*graph));
    return CUDA_SUCCESS;
  });
}

CUresult launch(Function function, CUgraphExec handle, CUstream stream_handle) {
  return in_stream(function, stream_handle, [&](Simulator& simulator, const StreamPtr& stream) {
    const std::lock_guard lock(simulator.monitor.mutex);
    const auto graph = simulator.executables.find(handle);
    if (!graph) return CUDA_ERROR_INVALID_VALUE;
    return simulator.streams.submit_locked(stream, [graph] {
      for (const auto& node : graph->nodes) {
        if (const auto result = node(); result != CUDA_SUCCESS) return result;
      }
      return CUDA_SUCCESS;
    });
  });
}

}  // namespace

extern "C" {

CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode) {
  return begin(Function::cuStreamBeginCapture_v2, stream, mode);
}
CUresult cuStreamBeginCapture_v2_ptsz(CUstream stream, CUstreamCaptureMode mode) {
  return begin(Function::cuStreamBeginCapture_v2_ptsz, stream, mode);
}
CUresult cuStreamEndCapture(CUstream stream, CUgraph* graph) {
  return end(Function::cuStreamEndCapture, stream, graph);
}
CUresult cuStreamEndCapture_ptsz(CUstream stream, CUgraph* graph) {
  return end(Function::cuStreamEndCapture_ptsz, stream, graph);
}
CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus* status) {
  return capture_info(Function::cuStreamIsCapturing, stream, status, nullptr, nullptr);
}
CUresult cuStreamIsCapturing_ptsz(CUstream stream, CUstreamCaptureStatus* status) {
  return capture_info(Function::cuStreamIsCapturing_ptsz, stream, status, nullptr, nullptr);
}

CUresult cuStreamGetCaptureInfo_v2(CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id, CUgraph* graph,
                                   const CUgraphNode** dependencies, size_t* count) {
  put_no_dependencies(dependencies, nullptr, count);
  return capture_info(Function::cuStreamGetCaptureInfo_v2, stream, status, id, graph);
}
CUresult cuStreamGetCaptureInfo_v2_ptsz(CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id, CUgraph* graph,
                                        const CUgraphNode** dependencies, size_t* count) {
  put_no_dependencies(dependencies, nullptr, count);
  return capture_info(Function::cuStreamGetCaptureInfo_v2_ptsz, stream, status, id, graph);
}
CUresult cuStreamGetCaptureInfo_v3(CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id, CUgraph* graph,
                                   const CUgraphNode** dependencies, const CUgraphEdgeData** edges, size_t* count) {
  put_no_dependencies(dependencies, edges, count);
  return capture_info(Function::cuStreamGetCaptureInfo_v3, stream, status, id, graph);
}
CUresult cuStreamGetCaptureInfo_v3_ptsz(CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id, CUgraph* graph,
                                        const CUgraphNode** dependencies, const CUgraphEdgeData** edges,
                                        size_t* count) {
  put_no_dependencies(dependencies, edges, count);
  return capture_info(Function::cuStreamGetCaptureInfo_v3_ptsz, stream, status, id, graph);
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  return with_driver(Function::cuThreadExchangeStreamCaptureMode, [&](Simulator&) {
    if (mode == nullptr) return CUDA_ERROR_INVALID_VALUE;
    std::swap(*mode, this_thread().capture_mode);
    return CUDA_SUCCESS;
  });
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec* out, CUgraph graph, unsigned long long) {
  return instantiate(Function::cuGraphInstantiateWithFlags, out, graph);
}
CUresult cuGraphInstantiateWithParams(CUgraphExec* out, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS*) {
  return instantiate(Function::cuGraphInstantiateWithParams, out, graph);
}
CUresult cuGraphInstantiateWithParams_ptsz(CUgraphExec* out, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS*) {
  return instantiate(Function::cuGraphInstantiateWithParams_ptsz, out, graph);
}

CUresult cuGraphGetNodes(CUgraph handle, CUgraphNode* nodes, size_t* count) {
  return with_driver(Function::cuGraphGetNodes, [&](Simulator& simulator) {
    const std::lock_guard lock(simulator.monitor.mutex);
    const auto graph = simulator.graphs.find(handle);
    if (!graph || count == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (nodes != nullptr) return CUDA_ERROR_NOT_SUPPORTED;
    *count = graph->nodes.size();
    return CUDA_SUCCESS;
  });
}

CUresult cuGraphLaunch(CUgraphExec graph, CUstream stream) { return launch(Function::cuGraphLaunch, graph, stream); }
CUresult cuGraphLaunch_ptsz(CUgraphExec graph, CUstream stream) {
  return launch(Function::cuGraphLaunch_ptsz, graph, stream);
}

CUresult cuGraphExecDestroy(CUgraphExec handle) {
  return with_driver(Function::cuGraphExecDestroy, [&](Simulator& simulator) {
    const std::lock_guard lock(simulator.monitor.mutex);
    return simulator.executables.take(handle) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  });
}

CUresult cuGraphDestroy(CUgraph handle) {
  return with_driver(Function::cuGraphDestroy, [&](Simulator& simulator) {
    const std::lock_guard lock(simulator.monitor.mutex);
    return simulator.graphs.take(handle) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  });
}

}  // extern "C"

// SPDX-License-Identifier: Apache-2.0
//
// Contexts, peers and stream captures.
#include "shim/preload/door.hpp"
#include "shim/preload/driver.hpp"
#include "shim/preload/hooks.hpp"

namespace lowtide::preload {
namespace {

CUresult created(CUresult result, const CUcontext* context) noexcept {
  if (result == CUDA_SUCCESS && context != nullptr) door(LOWTIDE_CUDA).context_created(*context);
  return result;
}

CUresult released(CUresult result, CUdevice device) noexcept {
  if (result == CUDA_SUCCESS) door(LOWTIDE_CUDA).primary_context_released(device);
  return result;
}

CUresult began(const lowtide_door_table_v1& state, CUresult result, CUstream stream) noexcept {
  state.capture_began(stream, result);
  return result;
}

// Asked of the driver before and after, because an end call that fails may or may not have ended the capture.
template <Symbol query>
bool is_capturing(CUstream stream) noexcept {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  return real<query>(stream, &status) == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE;
}

template <Symbol destroy>
CUresult destroy_stream(CUstream stream) noexcept {
  const bool capturing = is_capturing<Symbol::cuStreamIsCapturing>(stream);
  const CUresult result = real<destroy>(stream);
  if (capturing && result == CUDA_SUCCESS) door(LOWTIDE_CUDA).capture_ended(stream);
  return result;
}

}  // namespace

CUresult hook_cuCtxCreate(CUcontext* context, unsigned int flags, CUdevice device) {
  return created(real<Symbol::cuCtxCreate>(context, flags, device), context);
}

CUresult hook_cuCtxCreate_v2(CUcontext* context, unsigned int flags, CUdevice device) {
  return created(real<Symbol::cuCtxCreate_v2>(context, flags, device), context);
}

CUresult hook_cuCtxCreate_v3(CUcontext* context, CUexecAffinityParam* affinity, int count, unsigned int flags,
                             CUdevice device) {
  return created(real<Symbol::cuCtxCreate_v3>(context, affinity, count, flags, device), context);
}

#if LOWTIDE_CUDA_VERSION >= 12050
CUresult hook_cuCtxCreate_v4(CUcontext* context, CUctxCreateParams* parameters, unsigned int flags, CUdevice device) {
  return created(real<Symbol::cuCtxCreate_v4>(context, parameters, flags, device), context);
}
#endif

CUresult hook_cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  return created(real<Symbol::cuDevicePrimaryCtxRetain>(context, device), context);
}

CUresult hook_cuCtxDestroy(CUcontext context) {
  door(LOWTIDE_CUDA).context_destroying(context);
  return real<Symbol::cuCtxDestroy>(context);
}

CUresult hook_cuCtxDestroy_v2(CUcontext context) {
  door(LOWTIDE_CUDA).context_destroying(context);
  return real<Symbol::cuCtxDestroy_v2>(context);
}

CUresult hook_cuCtxDetach(CUcontext context) {
  door(LOWTIDE_CUDA).context_destroying(context);
  return real<Symbol::cuCtxDetach>(context);
}

CUresult hook_cuDevicePrimaryCtxReset(CUdevice device) {
  door(LOWTIDE_CUDA).primary_context_resetting(device);
  return real<Symbol::cuDevicePrimaryCtxReset>(device);
}

CUresult hook_cuDevicePrimaryCtxReset_v2(CUdevice device) {
  door(LOWTIDE_CUDA).primary_context_resetting(device);
  return real<Symbol::cuDevicePrimaryCtxReset_v2>(device);
}

CUresult hook_cuDevicePrimaryCtxRelease(CUdevice device) {
  return released(real<Symbol::cuDevicePrimaryCtxRelease>(device), device);
}

CUresult hook_cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  return released(real<Symbol::cuDevicePrimaryCtxRelease_v2>(device), device);
}

CUresult hook_cuCtxEnablePeerAccess(CUcontext peer, unsigned int flags) {
  const CUresult result = real<Symbol::cuCtxEnablePeerAccess>(peer, flags);
  if (result == CUDA_SUCCESS) door(LOWTIDE_CUDA).peer_access(peer, 1);
  return result;
}

CUresult hook_cuCtxDisablePeerAccess(CUcontext peer) {
  const CUresult result = real<Symbol::cuCtxDisablePeerAccess>(peer);
  if (result == CUDA_SUCCESS) door(LOWTIDE_CUDA).peer_access(peer, 0);
  return result;
}

CUresult hook_cuStreamBeginCapture(CUstream stream) {
  const auto& state = door(LOWTIDE_CUDA);
  state.capture_begin();
  return began(state, real<Symbol::cuStreamBeginCapture>(stream), stream);
}

CUresult hook_cuStreamBeginCapture_ptsz(CUstream stream) {
  const auto& state = door(LOWTIDE_CUDA);
  state.capture_begin();
  return began(state, real<Symbol::cuStreamBeginCapture_ptsz>(stream), per_thread(stream));
}

CUresult hook_cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode) {
  const auto& state = door(LOWTIDE_CUDA);
  state.capture_begin();
  return began(state, real<Symbol::cuStreamBeginCapture_v2>(stream, mode), stream);
}

CUresult hook_cuStreamBeginCapture_v2_ptsz(CUstream stream, CUstreamCaptureMode mode) {
  const auto& state = door(LOWTIDE_CUDA);
  state.capture_begin();
  return began(state, real<Symbol::cuStreamBeginCapture_v2_ptsz>(stream, mode), per_thread(stream));
}

#if LOWTIDE_CUDA_VERSION >= 12030
CUresult hook_cuStreamBeginCaptureToGraph(CUstream stream, CUgraph graph, const CUgraphNode* nodes,
                                          const CUgraphEdgeData* edges, size_t count, CUstreamCaptureMode mode) {
  const auto& state = door(LOWTIDE_CUDA);
  state.capture_begin();
  return began(state, real<Symbol::cuStreamBeginCaptureToGraph>(stream, graph, nodes, edges, count, mode), stream);
}

CUresult hook_cuStreamBeginCaptureToGraph_ptsz(CUstream stream, CUgraph graph, const CUgraphNode* nodes,
                                               const CUgraphEdgeData* edges, size_t count, CUstreamCaptureMode mode) {
  const auto& state = door(LOWTIDE_CUDA);
  state.capture_begin();
  return began(state, real<Symbol::cuStreamBeginCaptureToGraph_ptsz>(stream, graph, nodes, edges, count, mode),
               per_thread(stream));
}
#endif

CUresult hook_cuStreamEndCapture(CUstream stream, CUgraph* graph) {
  const bool capturing = is_capturing<Symbol::cuStreamIsCapturing>(stream);
  const CUresult result = real<Symbol::cuStreamEndCapture>(stream, graph);
  if (capturing && !is_capturing<Symbol::cuStreamIsCapturing>(stream)) door(LOWTIDE_CUDA).capture_ended(stream);
  return result;
}

CUresult hook_cuStreamEndCapture_ptsz(CUstream stream, CUgraph* graph) {
  const bool capturing = is_capturing<Symbol::cuStreamIsCapturing_ptsz>(stream);
  const CUresult result = real<Symbol::cuStreamEndCapture_ptsz>(stream, graph);
  if (capturing && !is_capturing<Symbol::cuStreamIsCapturing_ptsz>(stream))
    door(LOWTIDE_CUDA).capture_ended(per_thread(stream));
  return result;
}

CUresult hook_cuStreamDestroy(CUstream stream) { return destroy_stream<Symbol::cuStreamDestroy>(stream); }

CUresult hook_cuStreamDestroy_v2(CUstream stream) { return destroy_stream<Symbol::cuStreamDestroy_v2>(stream); }

}  // namespace lowtide::preload

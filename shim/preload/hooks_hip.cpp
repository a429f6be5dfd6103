// SPDX-License-Identifier: Apache-2.0
//
// HIP: start, devices, peers and stream captures.
#include "shim/preload/door.hpp"
#include "shim/preload/driver.hpp"
#include "shim/preload/hooks.hpp"

namespace lowtide::preload {
namespace {

/// Calls `go_on` unless the start of this process is refused.
template <typename GoOn>
hipError_t started(GoOn go_on) noexcept {
  int result = hipSuccess;
  return door(LOWTIDE_HIP).init(&result) == LOWTIDE_DONE ? static_cast<hipError_t>(result) : go_on();
}

hipError_t told(hipError_t result, int peer, int enabled) noexcept {
  if (result == hipSuccess) {
    door(LOWTIDE_HIP).peer_access(reinterpret_cast<void*>(static_cast<std::uintptr_t>(peer)), enabled);
  }
  return result;
}

template <typename Begin>
hipError_t begin_capture(hipStream_t stream, Begin begin) noexcept {
  const auto& state = door(LOWTIDE_HIP);
  state.capture_begin();
  const hipError_t result = begin();
  state.capture_began(stream, result);
  return result;
}

// A library without the question has no captures.
template <Symbol query>
bool is_capturing(hipStream_t stream) noexcept {
  hipStreamCaptureStatus status = hipStreamCaptureStatusNone;
  return real_address(static_cast<std::size_t>(query)) != nullptr && real<query>(stream, &status) == hipSuccess &&
         status != hipStreamCaptureStatusNone;
}

// Asked before and after, because an end call that fails may or may not have ended the capture.
template <Symbol end, Symbol query>
hipError_t end_capture(hipStream_t stream, hipGraph_t* graph, hipStream_t meant) noexcept {
  const bool capturing = is_capturing<query>(stream);
  const hipError_t result = real<end>(stream, graph);
  if (capturing && !is_capturing<query>(stream)) door(LOWTIDE_HIP).capture_ended(meant);
  return result;
}

}  // namespace

hipError_t hook_hipInit(unsigned flags) {
  return started([&] { return real<Symbol::hipInit>(flags); });
}

hipError_t hook_hipGetDeviceCount(int* count) {
  return started([&] { return real<Symbol::hipGetDeviceCount>(count); });
}

hipError_t hook_hipDeviceReset() {
  int device = 0;
  if (real<Symbol::hipGetDevice>(&device) == hipSuccess) door(LOWTIDE_HIP).primary_context_resetting(device);
  return real<Symbol::hipDeviceReset>();
}

hipError_t hook_hipDeviceEnablePeerAccess(int peer, unsigned flags) {
  return told(real<Symbol::hipDeviceEnablePeerAccess>(peer, flags), peer, 1);
}

hipError_t hook_hipDeviceDisablePeerAccess(int peer) {
  return told(real<Symbol::hipDeviceDisablePeerAccess>(peer), peer, 0);
}

hipError_t hook_hipStreamBeginCapture(hipStream_t stream, hipStreamCaptureMode mode) {
  return begin_capture(stream, [&] { return real<Symbol::hipStreamBeginCapture>(stream, mode); });
}

hipError_t hook_hipStreamBeginCapture_spt(hipStream_t stream, hipStreamCaptureMode mode) {
  return begin_capture(per_thread(stream), [&] { return real<Symbol::hipStreamBeginCapture_spt>(stream, mode); });
}

hipError_t hook_hipStreamBeginCaptureToGraph(hipStream_t stream, hipGraph_t graph, const hipGraphNode_t* nodes,
                                             const void* edges, size_t count, hipStreamCaptureMode mode) {
  return begin_capture(
      stream, [&] { return real<Symbol::hipStreamBeginCaptureToGraph>(stream, graph, nodes, edges, count, mode); });
}

hipError_t hook_hipStreamEndCapture(hipStream_t stream, hipGraph_t* graph) {
  return end_capture<Symbol::hipStreamEndCapture, Symbol::hipStreamIsCapturing>(stream, graph, stream);
}

hipError_t hook_hipStreamEndCapture_spt(hipStream_t stream, hipGraph_t* graph) {
  return end_capture<Symbol::hipStreamEndCapture_spt, Symbol::hipStreamIsCapturing_spt>(stream, graph,
                                                                                        per_thread(stream));
}

hipError_t hook_hipStreamDestroy(hipStream_t stream) {
  const bool capturing = is_capturing<Symbol::hipStreamIsCapturing>(stream);
  const hipError_t result = real<Symbol::hipStreamDestroy>(stream);
  if (capturing && result == hipSuccess) door(LOWTIDE_HIP).capture_ended(stream);
  return result;
}

}  // namespace lowtide::preload

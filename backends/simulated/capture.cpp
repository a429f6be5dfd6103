// SPDX-License-Identifier: Apache-2.0
#include "backends/simulated/capture.hpp"

#include <algorithm>

namespace lowtide::sim {

CUresult Captures::begin(const StreamPtr& stream, CUstreamCaptureMode mode, CUgraph graph) {
  if (stream->is_legacy) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (stream->capture) return CUDA_ERROR_ILLEGAL_STATE;
  auto capture = std::make_shared<Capture>();
  capture->id = next_id_++;
  capture->mode = mode;
  capture->origin = stream;
  capture->thread = std::this_thread::get_id();
  capture->handle = graph;
  capture->graph = std::make_shared<Graph>();
  capture->members[stream].joined = true;
  stream->capture = capture;
  stream->context->captures.insert(capture);
  active_.insert(std::move(capture));
  return CUDA_SUCCESS;
}

void Captures::close(const CapturePtr& capture) {
  for (const auto& [stream, member] : capture->members) stream->capture.reset();
  capture->members.clear();
  capture->origin->context->captures.erase(capture);
  active_.erase(capture);
}

CUresult Captures::end(const StreamPtr& stream, CapturePtr& out) {
  const auto capture = stream->capture;
  if (!capture) return CUDA_ERROR_ILLEGAL_STATE;
  if (capture->origin != stream) return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
  const bool same_thread = capture->thread == std::this_thread::get_id();
  if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && !same_thread) return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
  const bool joined = std::all_of(capture->members.begin(), capture->members.end(),
                                  [&](const auto& member) { return member.first == stream || member.second.joined; });
  close(capture);
  if (!capture->valid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (!joined) return CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
  out = capture;
  return CUDA_SUCCESS;
}

CUresult Captures::check_unsafe() {
  const auto mode = this_thread().capture_mode;
  if (mode == CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_SUCCESS;
  bool forbidden = false;
  for (const auto& capture : active_) {
    const bool own = capture->thread == std::this_thread::get_id() && capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED;
    const bool global = mode == CU_STREAM_CAPTURE_MODE_GLOBAL && capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
    if (!own && !global) continue;
    capture->valid = false;
    forbidden = true;
  }
  return forbidden ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
}

CUresult Captures::check_synchronise(const ContextPtr& context) {
  for (const auto& capture : context->captures) capture->valid = false;
  return context->captures.empty() ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

CUresult Captures::check_wait(const StreamPtr& stream) {
  if (!stream->capture) return check_legacy(stream);
  stream->capture->valid = false;
  return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

CUresult Captures::record(const StreamPtr& stream, Work work) {
  auto& capture = *stream->capture;
  if (!capture.valid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  capture.graph->nodes.push_back(std::move(work));
  auto& member = capture.members[stream];
  ++member.recorded;
  member.joined = false;
  return CUDA_SUCCESS;
}

CUresult Captures::record_event(const StreamPtr& stream, Event& event) {
  if (!stream->capture->valid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  event.capture = stream->capture;
  event.captured_stream = stream;
  event.captured_place = stream->capture->members[stream].recorded;
  return CUDA_SUCCESS;
}

CUresult Captures::wait_event(const StreamPtr& stream, const Event& event) {
  if (!event.capture) return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
  if (event.capture->members.empty()) return CUDA_ERROR_CAPTURED_EVENT;
  if (!event.capture->valid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (stream->capture && stream->capture != event.capture) return CUDA_ERROR_STREAM_CAPTURE_MERGE;
  if (stream->is_legacy) return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  auto& members = event.capture->members;
  if (!stream->capture) {
    // Work that is already queued here stays outside; the stream is in the capture from now on.
    stream->capture = event.capture;
    members[stream].joined = false;
  }
  if (event.captured_stream != stream) {
    auto& waited_for = members[event.captured_stream];
    waited_for.joined |= waited_for.recorded == event.captured_place;
  }
  return CUDA_SUCCESS;
}

CUresult Captures::check_legacy(const StreamPtr& stream) {
  if (!stream->is_legacy) return CUDA_SUCCESS;
  bool implicit = false;
  for (const auto& capture : stream->context->captures) {
    const auto blocks = [](const auto& member) { return member.first->blocking(); };
    if (std::none_of(capture->members.begin(), capture->members.end(), blocks)) continue;
    capture->valid = false;
    implicit = true;
  }
  return implicit ? CUDA_ERROR_STREAM_CAPTURE_IMPLICIT : CUDA_SUCCESS;
}

void Captures::drop_context(const ContextPtr& context) {
  const auto captures = context->captures;
  for (const auto& capture : captures) {
    capture->valid = false;
    close(capture);
  }
}

}  // namespace lowtide::sim

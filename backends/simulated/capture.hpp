// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backends/simulated/context.hpp"

namespace lowtide::sim {

/// Recorded work, in an order that its streams and events allow.
struct Graph {
  std::vector<Work> nodes;
};
using GraphPtr = std::shared_ptr<Graph>;

struct Capture {
  std::uint64_t id = 0;
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  StreamPtr origin;
  std::thread::id thread;
  bool valid = true;
  CUgraph handle = nullptr;
  GraphPtr graph;
  /// Streams that an event brought in, and how much each recorded that nothing waited for yet.
  struct Member {
    std::uint64_t recorded = 0;
    bool joined = false;
  };
  std::map<StreamPtr, Member> members;
};

/// Stream captures and their rules. Every function wants the monitor locked.
class Captures {
 public:
  CUresult begin(const StreamPtr& stream, CUstreamCaptureMode mode, CUgraph graph);
  /// `*out` is the recorded graph; CUDA_ERROR_STREAM_CAPTURE_INVALIDATED and the like end the capture too.
  CUresult end(const StreamPtr& stream, CapturePtr& out);

  /// For a call that is potentially unsafe during a capture (it may synchronise, or is not ordered by a stream):
  /// CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED if the calling thread's mode forbids it now; that invalidates the captures.
  CUresult check_unsafe();
  /// For a call that waits for the whole context.
  static CUresult check_synchronise(const ContextPtr& context);
  /// For a call that waits for, or asks about, this stream.
  static CUresult check_wait(const StreamPtr& stream);

  static CUresult record(const StreamPtr& stream, Work work);
  static CUresult record_event(const StreamPtr& stream, Event& event);
  static CUresult wait_event(const StreamPtr& stream, const Event& event);
  /// A default stream that blocking streams wait for cannot be used while one of them is captured.
  static CUresult check_legacy(const StreamPtr& stream);

  void drop_context(const ContextPtr& context);

 private:
  void close(const CapturePtr& capture);

  std::set<CapturePtr> active_;
  std::uint64_t next_id_ = 1;
};

}  // namespace lowtide::sim

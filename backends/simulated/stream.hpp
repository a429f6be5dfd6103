// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "backends/simulated/cuda_abi.hpp"
#include "backends/simulated/handles.hpp"

namespace lowtide::sim {

struct Context;
struct Capture;
struct Stream;
using ContextPtr = std::shared_ptr<Context>;
using StreamPtr = std::shared_ptr<Stream>;
using CapturePtr = std::shared_ptr<Capture>;

/// What a stream runs. Its result, unless CUDA_SUCCESS, becomes the error of the context.
using Work = std::function<CUresult()>;

/// The lock of contexts, streams, events and captures, and the news that one of them got on.
struct Monitor {
  std::mutex mutex;
  std::condition_variable changed;
};

/// A place in a stream: reached when all work up to `sequence` is done.
struct Point {
  StreamPtr stream;
  std::uint64_t sequence = 0;

  bool reached() const;
};

struct Task {
  std::uint64_t sequence;
  std::vector<Point> after;
  Work work;
};

/// A first-in first-out queue with a thread of its own, started by the first asynchronous work. All members are guarded
/// by the monitor.
struct Stream {
  ContextPtr context;
  unsigned flags = 0;
  bool is_legacy = false;  ///< the context's default stream, which waits for the blocking ones and they for it
  std::uint64_t submitted = 0;
  std::uint64_t completed = 0;
  std::deque<Task> queue;
  bool has_thread = false;
  bool running = false;
  bool retired = false;  ///< nothing new comes; what is queued still runs
  bool dead = false;     ///< its context is gone, and the queue with it
  CapturePtr capture;

  bool blocking() const { return (flags & CU_STREAM_NON_BLOCKING) == 0; }
  bool idle() const { return completed == submitted; }
};

inline bool Point::reached() const { return !stream || stream->dead || stream->completed >= sequence; }

struct Event {
  ContextPtr context;
  unsigned flags = 0;
  Point point;
  std::shared_ptr<std::atomic<std::int64_t>> nanoseconds;  ///< of a monotonic clock; 0 until the point is reached
  CapturePtr capture;                                      ///< recorded in this capture, not on the device
  StreamPtr captured_stream;
  std::uint64_t captured_place = 0;
};

/// Runs work. Thread-safe; nothing here is called with the monitor locked unless its name says so.
class Streams {
 public:
  explicit Streams(Monitor& monitor) : monitor_(monitor) {}

  /// Queues `work`, or records it if the stream is being captured.
  CUresult submit(const StreamPtr& stream, Work work);
  CUresult submit_locked(const StreamPtr& stream, Work work);
  /// Runs `work` on this thread when its turn in the stream comes, and answers its result. The stream does not capture.
  CUresult perform(const StreamPtr& stream, const Work& work);
  /// Waits; the error of the context, or CUDA_ERROR_CONTEXT_IS_DESTROYED if it went meanwhile.
  CUresult wait(const Point& point);
  CUresult wait_all(const ContextPtr& context);
  /// Everything queued in `stream` so far.
  static Point now_locked(const StreamPtr& stream) { return {stream, stream->submitted}; }
  /// Later work of `stream` waits for `point`.
  CUresult wait_in_stream_locked(const StreamPtr& stream, Point point);
  /// Drops all queued work of the context, and waits for the one piece that each stream may be running.
  void kill_locked(std::unique_lock<std::mutex>& lock, const ContextPtr& context);
  void retire_locked(const StreamPtr& stream);

 private:
  Task place_locked(const StreamPtr& stream, Work work);
  bool turn_of(const Stream& stream, const Task& task) const;
  CUresult run_unlocked(std::unique_lock<std::mutex>& lock, const StreamPtr& stream, const Task& task);
  void start_thread_locked(const StreamPtr& stream);
  void serve(const StreamPtr& stream);

  Monitor& monitor_;
};

}  // namespace lowtide::sim

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pthread.h>

#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>

#include "allocator/trace/this_process.hpp"
#include "allocator/trace/trace_file.hpp"

namespace lowtide::trace {

/// Where the threads of the process append their events: each has a lane with an open chunk, which the next thread gets
/// once it has ended, so that many short threads do not take a chunk each.
class Lanes {
 public:
  /// Code::refused if the process has no key for thread-local storage left.
  static Result<std::unique_ptr<Lanes>> make(TraceFile& file, const ThisProcess& process);
  /// Threads that appended may still run, but append no more.
  ~Lanes();
  Lanes(const Lanes&) = delete;
  Lanes& operator=(const Lanes&) = delete;

  /// Appends `events` to the calling thread's lane, with the time that is now, or counts what has no room as dropped.
  /// Not from a signal handler.
  void append(std::span<Event> events) noexcept;

 private:
  /// In a cache line of its own: its thread writes to it at each event.
  struct alignas(64) Lane {
    Lanes& owner;
    Lane* next_idle = nullptr;
    std::optional<Chunk> chunk;
    std::uint32_t used = events_per_chunk;  ///< of the chunk
    std::uint64_t events = 0;               ///< in it
    pid_t thread = 0;
    bool introduced = false;  ///< the chunk says whose the events are that follow
  };

  Lanes(TraceFile& file, const ThisProcess& process) : file_(file), process_(process) {}
  Lane* adopt() noexcept;
  static void leave(void* lane) noexcept;
  bool make_room(Lane& lane, std::uint64_t time) noexcept;
  static void write(Lane& lane, const Event& event) noexcept;

  TraceFile& file_;
  const ThisProcess& process_;
  pthread_key_t key_{};  ///< each thread's lane
  bool has_key_ = false;
  std::mutex mutex_;  ///< of the two below
  std::deque<Lane> lanes_;
  Lane* idle_ = nullptr;  ///< lanes whose threads have ended, linked
};

}  // namespace lowtide::trace

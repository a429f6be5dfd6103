// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <semaphore.h>

#include <chrono>
#include <cstddef>
#include <deque>
#include <mutex>
#include <optional>

#include "allocator/base/quiet_thread.hpp"
#include "allocator/control/controlled.hpp"
#include "allocator/control/open_fds.hpp"
#include "allocator/control/protocol.hpp"
#include "allocator/control/send.hpp"

namespace lowtide {

/// Carries out pauses, resumes, trims and phases one after the other on a thread of its own, so that status still
/// answers meanwhile. The thread starts with the first of them.
class TransitionQueue {
 public:
  static constexpr std::size_t most_waiting = 8;

  /// `client_timeout`: how long a client may take to read its answer. The references outlive this object.
  TransitionQueue(Controlled& controlled, OpenFds& fds, std::chrono::milliseconds client_timeout)
      : controlled_(controlled), fds_(fds), client_timeout_(client_timeout) {
    ::sem_init(&work_, 0, 0);
  }

  /// Takes over `socket`, which is in the table of descriptors. On an error it stays the caller's. `request` is a
  /// pause, a resume, a trim or a phase.
  Status submit(int socket, const Request& request);
  /// Lets a running transition end, tells the waiting clients that they came too late, and joins.
  void stop() noexcept;
  void abandon_in_child() noexcept { thread_.forget(); }

 private:
  struct Job {
    int socket;
    Request request;
  };

  void work() noexcept;
  std::optional<Job> next_job() noexcept;
  void carry_out(const Job& job) noexcept;
  std::string answer_to(const Job& job, ProgressWriter& progress);

  Controlled& controlled_;
  OpenFds& fds_;
  const std::chrono::milliseconds client_timeout_;
  /// Counts jobs, and the wish to stop. Not a condition variable: destroying one in a fork child waits for the waiters
  /// of the parent.
  sem_t work_{};
  std::mutex mutex_;  ///< guards what follows
  std::deque<Job> waiting_;
  bool stopping_ = false;
  QuietThread thread_;
};

}  // namespace lowtide

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <atomic>
#include <exception>
#include <functional>
#include <thread>

namespace hazards {

/// Another thread of the program.
class OtherThread {
 public:
  explicit OtherThread(std::function<void()> body);
  ~OtherThread();
  OtherThread(const OtherThread&) = delete;
  OtherThread& operator=(const OtherThread&) = delete;

  bool done() const { return done_; }
  /// Waits until the thread sleeps in the kernel, or has ended. To be asked of a thread that does nothing which makes
  /// it sleep but the wait that is tested.
  void wait_until_asleep_or_done() const;
  /// Waits for its end; throws what it threw.
  void join();

 private:
  std::atomic<bool> done_{false};
  std::atomic<pid_t> id_{0};
  std::exception_ptr thrown_;
  std::thread thread_;
};

/// Waits until a thread of this or another process, by its thread id, sleeps in the kernel for good, or `happened`.
void wait_until_asleep_or(pid_t thread, const std::function<bool()>& happened);
/// Waits until `happened`, which another thread makes come true.
void wait_until(const std::function<bool()>& happened);

}  // namespace hazards

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pthread.h>

#include <functional>

#include "allocator/base/result.hpp"

namespace lowtide {

/// A thread inside a host that must not notice it: no signal of the host is ever delivered to it, and destroying this
/// object neither joins nor ends it, since in a fork child, and once exit has begun, there is nothing to join.
class QuietThread {
 public:
  /// `body` does not throw. `name` has at most 15 characters.
  Status start(const char* name, std::function<void()> body);
  bool started() const noexcept { return started_; }
  /// Waits for the end of the body, if it was started.
  void join() noexcept;
  /// In a fork child: the thread is not there.
  void forget() noexcept { started_ = false; }

 private:
  pthread_t thread_{};
  bool started_ = false;
};

}  // namespace lowtide

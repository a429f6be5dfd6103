// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <memory>

#include "allocator/base/result.hpp"

namespace lowtide {

/// Waits for the device with a time limit, which no driver call has: a thread of its own makes the call. A call that
/// does not come back in time (a kernel that waits for what is held back) is left running; the next wait joins it
/// first. One waiter at a time.
class Drain {
 public:
  /// Runs `synchronise` and waits until `deadline`. Code::busy when it passed.
  Status wait(std::function<Status()> synchronise, std::chrono::steady_clock::time_point deadline);

 private:
  struct Call;
  std::shared_ptr<Call> running_;
};

}  // namespace lowtide

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

namespace lowtide {

/// Who goes first where the driver serves one call at a time: a program that allocates makes several short calls, and
/// must not wait before each of them for a long one of ours. Thread-safe.
class RightOfWay {
 public:
  /// A program's allocation or free is under way.
  class Pass {
   public:
    explicit Pass(RightOfWay& way) noexcept : way_(way) { way_.change(1); }
    Pass(const Pass&) = delete;
    Pass& operator=(const Pass&) = delete;
    ~Pass() { way_.change(-1); }

   private:
    RightOfWay& way_;
  };

  /// Before a long call: waits for those that are passing. Not for ever, since others may follow them without end.
  void give_way() noexcept {
    std::unique_lock lock(mutex_);
    gone_.wait_for(lock, most_wait, [this] { return passing_ == 0; });
  }

 private:
  static constexpr std::chrono::milliseconds most_wait{2};

  void change(int by) noexcept {
    const std::lock_guard lock(mutex_);
    passing_ += by;
    if (passing_ == 0) gone_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable gone_;
  int passing_ = 0;
};

}  // namespace lowtide

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <mutex>
#include <span>

#include "allocator/core/report.hpp"
#include "allocator/core/settings.hpp"

namespace lowtide {

/// Who follows the blocks of which tag when they come back at other addresses. Thread-safe.
class Relocations {
 public:
  struct Follower {
    void (*moved)(const void* from, void* to, std::size_t size, void* user);
    void* user;
  };

  /// A null `moved` ends it: no call begins any more.
  void follow(const TagName& tag, const Follower& follower) {
    const std::lock_guard lock(mutex_);
    if (follower.moved == nullptr)
      followers_.erase(tag);
    else
      followers_[tag] = follower;
  }

  /// Notes in `settings` which tags may move.
  void mark(CoreSettings& settings) const {
    const std::lock_guard lock(mutex_);
    for (const auto& [tag, follower] : followers_) settings.tags[tag].may_move = true;
  }

  /// Tells the followers, who may call Lowtide.
  void tell(std::span<const BlockMove> moves) const {
    for (const BlockMove& move : moves) {
      Follower follower{};
      {
        const std::lock_guard lock(mutex_);
        const auto found = followers_.find(move.tag);
        if (found != followers_.end()) follower = found->second;
      }
      if (follower.moved == nullptr) continue;
      follower.moved(reinterpret_cast<const void*>(move.from.value), reinterpret_cast<void*>(move.to.value),
                     move.size.value, follower.user);
    }
  }

 private:
  mutable std::mutex mutex_;
  std::map<TagName, Follower> followers_;
};

}  // namespace lowtide

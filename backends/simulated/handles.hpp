// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <utility>

namespace lowtide::sim {

/// Objects behind the driver's opaque pointers. A handle is a number that is never given out twice, so that a stale one
/// is an error and not another object. Not thread-safe: the monitor guards it.
template <class Handle, class T>
class Handles {
 public:
  /// `first` tells kinds of handles apart.
  explicit Handles(std::uint64_t first) : next_(first) {}

  Handle add(std::shared_ptr<T> object) {
    const auto key = next_;
    next_ += 16;
    objects_.emplace(key, std::move(object));
    return reinterpret_cast<Handle>(key);
  }
  void add_as(Handle handle, std::shared_ptr<T> object) { objects_.emplace(key_of(handle), std::move(object)); }
  /// A handle for an object that comes later.
  Handle reserve() { return reinterpret_cast<Handle>(std::exchange(next_, next_ + 16)); }

  std::shared_ptr<T> find(Handle handle) const {
    const auto found = objects_.find(key_of(handle));
    return found == objects_.end() ? nullptr : found->second;
  }
  /// The object, which is no longer reachable by its handle; nothing for a stale handle.
  std::shared_ptr<T> take(Handle handle) {
    const auto found = objects_.find(key_of(handle));
    if (found == objects_.end()) return nullptr;
    auto object = std::move(found->second);
    objects_.erase(found);
    return object;
  }
  template <class Predicate>
  void drop_if(Predicate predicate) {
    std::erase_if(objects_, [&](const auto& entry) { return predicate(*entry.second); });
  }
  std::uint64_t size() const { return objects_.size(); }

 private:
  static std::uint64_t key_of(Handle handle) { return reinterpret_cast<std::uint64_t>(handle); }

  std::uint64_t next_;
  std::unordered_map<std::uint64_t, std::shared_ptr<T>> objects_;
};

}  // namespace lowtide::sim

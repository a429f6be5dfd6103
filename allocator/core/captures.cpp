// SPDX-License-Identifier: Apache-2.0
#include "allocator/core/captures.hpp"

#include <algorithm>
#include <cinttypes>

namespace lowtide {

void Captures::begin() noexcept {
  std::unique_lock lock(mutex_);
  unblocked_.wait(lock, [this] { return blocks_ == 0; });
  ++active_;
}

void Captures::began(const void* stream, bool ok) noexcept {
  const std::lock_guard lock(mutex_);
  if (!ok) {
    --active_;
    return;
  }
  const auto place = std::find(streams_.begin(), streams_.end(), nullptr);
  if (place != streams_.end()) {
    *place = stream;
  } else {
    ++unlisted_;
  }
}

bool Captures::ended(const void* stream) noexcept {
  const std::lock_guard lock(mutex_);
  const auto place = std::find(streams_.begin(), streams_.end(), stream);
  if (stream != nullptr && place != streams_.end()) {
    *place = nullptr;
  } else if (unlisted_ > 0) {
    --unlisted_;
  } else {
    return false;
  }
  return --active_ == 0;
}

Result<Captures::Block> Captures::block() noexcept {
  const std::lock_guard lock(mutex_);
  if (active_ > 0) {
    return fail(Error::format(Code::refused,
                              "%" PRIu64 " stream capture(s) under way: a pause would break them. Repeat the call when "
                              "the capture has ended",
                              active_));
  }
  ++blocks_;
  return Block(*this);
}

void Captures::unblock() noexcept {
  {
    const std::lock_guard lock(mutex_);
    --blocks_;
  }
  unblocked_.notify_all();
}

std::uint64_t Captures::active() const noexcept {
  const std::lock_guard lock(mutex_);
  return active_;
}

}  // namespace lowtide

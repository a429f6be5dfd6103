// SPDX-License-Identifier: Apache-2.0
#include "allocator/core/captures.hpp"

#include <algorithm>
#include <cinttypes>

#include "allocator/core/uncancelled.hpp"

namespace lowtide {

void Captures::begin() noexcept {
  const Uncancelled uncancelled;
  std::optional<ObservedWait> wait;  // told of without the lock
  std::unique_lock lock(mutex_);
  if (blocks_ > 0) wait.emplace(observer_, Observer::Wait::capture);
  unblocked_.wait(lock, [this] { return blocks_ == 0; });
  ++active_;
}

void Captures::began(const void* stream, bool ok, ContextId context) noexcept {
  const std::lock_guard lock(mutex_);
  if (!ok) {
    --active_;
    return;
  }
  const auto place =
      std::find_if(captures_.begin(), captures_.end(), [](const Capture& c) { return c.stream == nullptr; });
  if (place != captures_.end()) {
    *place = {stream, context};
  } else {
    ++unlisted_;
  }
}

bool Captures::ended(const void* stream) noexcept {
  const std::lock_guard lock(mutex_);
  const auto place =
      std::find_if(captures_.begin(), captures_.end(), [&](const Capture& c) { return c.stream == stream; });
  if (stream != nullptr && place != captures_.end()) {
    *place = {};
  } else if (unlisted_ > 0) {
    --unlisted_;
  } else {
    return false;
  }
  return --active_ == 0;
}

bool Captures::lost(ContextId context) noexcept {
  const std::lock_guard lock(mutex_);
  const auto before = active_;
  for (auto& capture : captures_) {
    if (capture.stream == nullptr || context.value == 0 || capture.context != context) continue;
    capture = {};
    --active_;
  }
  return before > 0 && active_ == 0;
}

Result<Captures::Block> Captures::block() noexcept {
  const std::lock_guard lock(mutex_);
  if (active_ > 0) {
    return fail(Error::format(Code::refused,
                              "%" PRIu64 " stream capture(s) under way, which this would break. Repeat the call when "
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

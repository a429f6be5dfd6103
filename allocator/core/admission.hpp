// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "allocator/base/result.hpp"
#include "allocator/core/types.hpp"

namespace lowtide {

/// What one tag has to do with a transition, on one device.
struct TagPlan {
  TagName tag;
  DeviceId device{};
  Bytes memory;     ///< of the device, whole extents: what a resume gets, or a pause gives back
  Bytes discarded;  ///< requested bytes of blocks that a pause drops, or that come back without their content
};

/// What a transition is about to do.
struct TransitionPlan {
  enum class Step : std::uint8_t { pause, resume };
  Step step{};
  std::optional<TagName> asked;  ///< what the caller named; nothing: all tags
  std::vector<TagPlan> tags;     ///< by tag, then by device; empty if there is nothing to do
};

/// Device memory behind the extents of a tag, on one device: absolute, blocks of the program's last second included.
struct TagMemory {
  TagName tag;
  DeviceId device{};
  Bytes held;
};

/// A transition that was admitted, until it ended. The core calls `taken` as it goes, then `ended` exactly once,
/// whether it did what it planned or everything was undone, then destroys it. From one thread; the device memory that a
/// failure gave back is the driver's again by the time of `ended`.
class Admitted {
 public:
  virtual ~Admitted() = default;
  /// `memory` of what was planned for `device` is out of the driver's free memory from now on: what was reserved for it
  /// must not count beside it.
  virtual void taken(DeviceId device, Bytes memory) noexcept = 0;
  /// `now` has a row for each of the plan's: what is true when it ended, also where the driver would not take something
  /// back. What is still reserved is nobody's.
  virtual void ended(bool done, std::span<const TagMemory> now) noexcept = 0;
};

/// Whom a transition or an update asks before it changes anything. The policy answers; without one, all is admitted.
///
/// Called by the thread that asked for the transition, which has its turn: no other transition or update of this
/// process runs meanwhile. No lock of the core is held that BlockTable's or Transitions' const members take, so that an
/// answer may be read from them. An answer does not wait: Code::device_memory says "not now", and the transition gives
/// up its turn and asks again, up to CoreSettings::device_wait; its last answer is then the caller's. Any other error
/// is the caller's at once. Messages have the numbers and who stands in the way.
class Admission {
 public:
  virtual ~Admission() = default;

  /// Asked once per attempt, also for a plan with nothing in it. Null: admitted, and nothing is to be told.
  virtual Result<std::unique_ptr<Admitted>> admit(const TransitionPlan& plan) = 0;

  /// Between two attempts of a transition that was told "not now", or met a full device. Returns at `until`, or as soon
  /// as it may be worth asking again. Called without the turn, by the thread that will ask.
  virtual void wait(std::chrono::steady_clock::time_point until) { std::this_thread::sleep_until(until); }

  /// The transition that this thread asked for failed, and will not ask again.
  virtual void given_up() noexcept {}

  /// Whether the calling thread was told "not now" because of what another process holds, and not for want of room.
  virtual bool waits_for_others() { return false; }

  enum class Update : std::uint8_t { begin, commit };
  /// Whether `tag` may begin its update to `version`, or end it. An error is Code::refused, and nothing changes.
  virtual Status admit(Update step, const TagName& tag, std::uint64_t version) = 0;
  /// The tags whose version goes up by 1 with that, in the same moment.
  virtual std::vector<TagName> bumped_by(TransitionPlan::Step step, const TagName& tag) = 0;
  virtual std::vector<TagName> bumped_by(Update step, const TagName& tag) = 0;
};

}  // namespace lowtide

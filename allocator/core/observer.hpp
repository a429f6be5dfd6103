// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>

#include "allocator/base/result.hpp"
#include "allocator/core/report.hpp"
#include "allocator/core/types.hpp"

namespace lowtide {

/// A live block, for who has to know that it goes.
struct BlockNote {
  TagName tag;
  DeviceId device{};
  ContextId context;
  AddressRange range;
};

/// Who is told of what the core does, so that it can be recorded. The composition root fills it in; without one, nobody
/// is told and no clock is read.
///
/// Called by the thread that did it, as soon as it is done. No lock of the core is held but the turn of a transition
/// for `copied` and `waited`: const members of BlockTable may be asked. Returns soon, and never calls for a transition.
class Observer {
 public:
  virtual ~Observer() = default;

  enum class Step : std::uint8_t { pause, resume };
  virtual void transition_begins(Step step, const std::optional<TagName>& tag) noexcept = 0;
  /// With the time that the caller waited for it, holds and waits for room included.
  virtual void transition_ended(Step step, const std::optional<TagName>& tag, std::chrono::nanoseconds time,
                                const Result<TransitionReport>& report) noexcept = 0;

  enum class Update : std::uint8_t { begin, commit, abort };
  virtual void updated(Update step, const TagName& tag, std::uint64_t version, const Status& status) noexcept = 0;
  /// `again`: the same phase is entered once more, by who only did the first part of it now.
  virtual void phase_entered(const TagName& name, bool again) noexcept = 0;

  enum class Wait : std::uint8_t {
    room,     ///< free device memory
    gate,     ///< the gate was closed
    capture,  ///< a stream capture, or a transition, came first
    other,    ///< another process held a tag
    drain,    ///< the devices came to rest
  };
  /// A wait is over. `memory`: what was waited for, if it is memory and is there.
  virtual void waited(Wait what, std::chrono::nanoseconds time, Bytes memory) noexcept = 0;

  enum class Copy : std::uint8_t { out, in };
  /// A transition has copied `bytes` of extents of `device`, of which the first begins at `first`.
  virtual void copied(Copy direction, DeviceId device, DeviceAddress first, Bytes bytes,
                      std::chrono::nanoseconds time) noexcept = 0;

  /// A context that nobody knew of is in use.
  virtual void context_seen(DeviceId device, ContextId context) noexcept = 0;
  /// The context is about to go, and what belongs to it: `blocks` of ours, and whatever the vendor has given out there.
  virtual void context_dropping(ContextId context, std::span<const BlockNote> blocks) noexcept = 0;
  /// It is not used any more by anybody whom the core knows. Returns once the observer does not use it either.
  virtual void context_dropped(ContextId context) noexcept = 0;
};

/// Tells of a wait when it ends with this.
class ObservedWait {
 public:
  using Clock = std::chrono::steady_clock;
  ObservedWait(Observer* observer, Observer::Wait what) noexcept
      : observer_(observer), what_(what), begin_(observer == nullptr ? Clock::time_point{} : Clock::now()) {}
  ObservedWait(const ObservedWait&) = delete;
  ObservedWait& operator=(const ObservedWait&) = delete;
  ~ObservedWait() {
    if (observer_ != nullptr) observer_->waited(what_, Clock::now() - begin_, memory_);
  }
  void was_for(Observer::Wait what) noexcept { what_ = what; }
  void got(Bytes memory) noexcept { memory_ = memory; }

 private:
  Observer* const observer_;
  Observer::Wait what_;
  const Clock::time_point begin_;
  Bytes memory_;
};

}  // namespace lowtide

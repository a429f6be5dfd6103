// SPDX-License-Identifier: Apache-2.0
// What both transitions are made of.
#pragma once

#include <algorithm>
#include <chrono>
#include <mutex>
#include <thread>
#include <utility>

#include "allocator/core/transition.hpp"

namespace lowtide {

inline TagSettings settings_of(const CoreSettings& settings, const Extent& extent) {
  return settings.of(extent.region.label);
}

/// Content that stays in host memory where it can be read.
inline bool is_moved(const Extent& extent) { return extent.host && extent.host->filled(); }

/// The bytes that a transition has copied of an extent.
inline Bytes copied_of(const Extent& extent) {
  if (is_moved(extent)) return extent.requested;
  return extent.backup ? extent.backup->size() : Bytes{};
}

/// What was parked, or came back; of that, `copied` bytes with their content.
inline void count(TransitionReport& report, const Extent& extent, Bytes copied) {
  report.parked += copied;
  report.discarded += extent.requested - copied;
  report.blocks += extent.blocks;
}

/// Nothing, or Code::refused if a tag of `extents` is being updated. `step` is for the message.
inline Status refuse_updates(const BlockTable& table, std::span<Extent* const> extents, const char* step) {
  const Region* seen = nullptr;
  for (const Extent* extent : extents) {
    if (extent->blocks == 0 || std::exchange(seen, &extent->region) == &extent->region) continue;
    const TagName& tag = extent->region.label.tag;
    const auto updates = table.updates(tag);
    if (!updates || !updates->pending) continue;
    return fail(Error::format(Code::refused,
                              "an update of %s to version %llu is under way: commit or abort it before the %s. Nothing "
                              "changed",
                              tag.c_str(), static_cast<unsigned long long>(*updates->pending), step));
  }
  return {};
}

template <class Attempt>
Result<TransitionReport> Transitions::try_for(const CoreSettings& settings, Attempt attempt) {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::milliseconds between_attempts{10};
  const auto deadline = Clock::now() + settings.device_wait.value_or(std::chrono::milliseconds{0});
  std::optional<ObservedWait> wait;
  for (;;) {
    const bool last_try = Clock::now() >= deadline;
    auto report = attempt();
    if (report && wait) wait->got(report->parked + report->discarded);
    if (report) return report;
    if (report.error().code() != Code::device_memory || last_try) {
      if (admission_ != nullptr) admission_->given_up();
      return report;
    }
    if (!wait) wait.emplace(observer_, Observer::Wait::room);
    if (admission_ != nullptr && admission_->waits_for_others()) wait->was_for(Observer::Wait::other);
    const auto next = std::min(deadline, Clock::now() + between_attempts);
    if (admission_ != nullptr)
      admission_->wait(next);
    else
      std::this_thread::sleep_until(next);
  }
}

/// A transition's turn: no other runs meanwhile, and it is the one to be seen as under way.
class Transitions::Turn {
 public:
  Turn(Transitions& transitions, const char* step, const ProgressSink& progress)
      : transitions_(transitions), turn_(transitions.mutex_), sink_([this, &progress](const Progress& now) {
          show(now);
          if (progress) progress(now);
        }) {
    const std::lock_guard lock(transitions_.running_mutex_);
    transitions_.running_ = {step, {}};
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;
  ~Turn() {
    const std::lock_guard lock(transitions_.running_mutex_);
    transitions_.running_.reset();
  }
  /// Shows progress, and passes it on.
  const ProgressSink& sink() const { return sink_; }

 private:
  void show(const Progress& now) {
    const std::lock_guard lock(transitions_.running_mutex_);
    transitions_.running_->progress = now;
  }

  Transitions& transitions_;
  const std::lock_guard<std::mutex> turn_;
  const ProgressSink sink_;
};

}  // namespace lowtide

// SPDX-License-Identifier: Apache-2.0
// What both transitions are made of.
#pragma once

#include <mutex>

#include "allocator/core/transition.hpp"

namespace lowtide {

inline TagSettings settings_of(const CoreSettings& settings, const Extent& extent) {
  return settings.of(extent.region.label);
}

/// Content that stays in host memory where it can be read.
inline bool is_moved(const Extent& extent) { return extent.host && extent.host->filled(); }

/// What was parked, or came back: `extent` has the backup that it had meanwhile.
inline void count(TransitionReport& report, const Extent& extent) {
  (extent.backup ? report.parked : report.discarded) += extent.requested;
  report.blocks += extent.blocks;
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

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <span>

#include "allocator/core/block_table.hpp"
#include "allocator/core/report.hpp"
#include "allocator/core/settings.hpp"

namespace lowtide {

class TransitionDevices;

/// The transition that has its turn, and how far its copying is.
struct RunningTransition {
  const char* step;  ///< "pause" or "resume"
  Progress progress;
};

/// Pause and resume, each a transaction over all blocks of a tag, or of all tags, on all devices.
///
/// Pause: plan - quiesce - copy out - commit. Until its first unmap it rolls back; from then on it goes on, an extent
/// whose unmap fails stays resident, the call answers Code::driver, and repeating it finishes. Resume: plan - wait for
/// room - create, map, access, copy in - commit. It rolls back completely: backups are dropped only when the whole tag
/// is back.
///
/// Transitions of one process run one at a time; allocations, frees and other tags go on meanwhile. Thread-safe.
class Transitions {
 public:
  Transitions(BlockTable& table, BackupStore& store, Captures& captures)
      : table_(table), store_(store), captures_(captures) {}

  /// `tag` empty: all tags. Code::refused during a stream capture and for a shared block.
  Result<TransitionReport> pause(const std::optional<TagName>& tag, const CoreSettings& settings,
                                 const ProgressSink& progress);
  /// Backed blocks come back first, then discarded ones, with their tag's fill. Waits up to `settings.device_wait` for
  /// room, during which other transitions may run.
  Result<TransitionReport> resume(const std::optional<TagName>& tag, const CoreSettings& settings,
                                  const ProgressSink& progress);

  /// Gives back the host memory that is kept for the next pause, which then copies everything. Backups of parked blocks
  /// stay. Waits for a transition that runs; Code::refused during a stream capture.
  Result<TrimReport> trim();

  /// Nothing while none has its turn. One that waits, for its turn or for room, is not under way. Does not wait.
  std::optional<RunningTransition> running() const;

  /// Runs `work` while no transition runs.
  template <class Work>
  auto exclude(Work&& work) {
    const std::lock_guard lock(mutex_);
    return std::forward<Work>(work)();
  }

 private:
  class Turn;
  Result<TransitionReport> resume_once(const std::optional<TagName>& tag, const CoreSettings& settings,
                                       const ProgressSink& progress);
  /// From the first copy to the last unmap.
  Status park(std::span<Extent* const> extents, TransitionDevices& devices, const CoreSettings& settings,
              const ProgressSink& progress, TransitionReport& report);
  /// Gives back what is kept for later pauses: of all extents that are idle, or of those of the caller, which it has
  /// claimed. Whether that was anything.
  bool drop_retained();
  bool drop_retained(std::span<Extent* const> extents);

  BlockTable& table_;
  BackupStore& store_;
  Captures& captures_;
  std::mutex mutex_;
  mutable std::mutex running_mutex_;
  std::optional<RunningTransition> running_;  ///< written by who holds mutex_
  bool told_of_no_host_backing_ = false;
};

}  // namespace lowtide

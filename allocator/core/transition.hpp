// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <span>

#include "allocator/core/admission.hpp"
#include "allocator/core/block_table.hpp"
#include "allocator/core/observer.hpp"
#include "allocator/core/report.hpp"
#include "allocator/core/settings.hpp"

namespace lowtide {

class AdmittedTransition;
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
/// Transitions and updates of one process run one at a time; allocations, frees and other tags go on meanwhile. One
/// that was told to wait, by the policy or by a full device, gives its turn up meanwhile. Thread-safe.
class Transitions {
 public:
  Transitions(BlockTable& table, BackupStore& store, Captures& captures)
      : table_(table), store_(store), captures_(captures) {}

  /// `tag` empty: all tags. Code::refused during a stream capture, for a shared block and during an update.
  Result<TransitionReport> pause(const std::optional<TagName>& tag, const CoreSettings& settings,
                                 const ProgressSink& progress);
  /// Backed blocks come back first, then discarded ones, with their tag's fill. Waits up to `settings.device_wait` for
  /// room, during which other transitions may run.
  Result<TransitionReport> resume(const std::optional<TagName>& tag, const CoreSettings& settings,
                                  const ProgressSink& progress);

  // Updates of a tag's content; each waits for a transition that runs. A call that finds done what it asks for is
  // counted and succeeds. Code::refused, with the numbers and nothing changed, where the tag is in no state for it, and
  // what the policy refuses. A failure of the driver leaves the state as it was: repeat the call.
  /// The blocks of `tag` are being written, on the device or, while they are parked, by write_backup: no pause and no
  /// resume of them until the update is over. Blocks that the tag gets meanwhile belong to the update.
  Status begin_update(const TagName& tag, std::uint64_t version);
  /// All of `tag` was written. Refused, and the update goes on, if a parked block was not written as a whole. What a
  /// resume brought back blank is looked at, after a wait for the devices, and what is still blank is as the tag's
  /// coverage says: put back from what was held back, or the update is over and `tag` stale, and the error names it.
  Status commit_update(const TagName& tag, std::uint64_t version, const CoreSettings& settings);
  /// What was, or may have been, written is stale: what was resident, and the parked blocks that were written to.
  Status abort_update(const TagName& tag);
  /// Somebody who cannot begin and commit says that stale content is valid. As a commit, but what is still blank and
  /// was not held back is only told in the log.
  Status mark_valid(const TagName& tag, std::uint64_t version, const CoreSettings& settings);
  /// Gives up the backups of what is parked of `tag`, as if the pause had discarded it.
  Status drop_backup(const TagName& tag, const CoreSettings& settings);

  /// Whom transitions and updates ask; it outlives this. Before the first of them.
  void set_admission(Admission& admission) noexcept { admission_ = &admission; }
  /// Whom to tell of waits and copies; it outlives this. Before the first of them.
  void set_observer(Observer& observer) noexcept { observer_ = &observer; }

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
  /// Calls `attempt` until it has an answer other than Code::device_memory, or the wait is over.
  template <class Attempt>
  Result<TransitionReport> try_for(const CoreSettings& settings, Attempt attempt);
  Result<TransitionReport> pause_once(const std::optional<TagName>& tag, const CoreSettings& settings,
                                      const ProgressSink& progress);
  Result<TransitionReport> resume_once(const std::optional<TagName>& tag, const CoreSettings& settings,
                                       const ProgressSink& progress);
  Status finish_update(const TagName& tag, std::uint64_t version, const CoreSettings& settings, bool may_refuse);
  std::vector<TagName> bumped_by(Admission::Update step, const TagName& tag);
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
  Admission* admission_ = nullptr;
  Observer* observer_ = nullptr;
  std::mutex mutex_;
  mutable std::mutex running_mutex_;
  std::optional<RunningTransition> running_;  ///< written by who holds mutex_
  bool told_of_no_host_backing_ = false;
};

}  // namespace lowtide

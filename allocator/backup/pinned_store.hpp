// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <mutex>

#include "allocator/backup/pinned_arena.hpp"
#include "allocator/backup/settings.hpp"
#include "allocator/core/backup_store.hpp"
#include "allocator/core/right_of_way.hpp"

namespace lowtide {

/// Keeps backups in registered host memory. With `host.retain = auto` the memory of the last pause is kept, since
/// getting registered memory is what makes a first pause slow, and so are the bytes in it: the next pause copies only
/// the pages whose digests differ.
class PinnedStore final : public BackupStore {
 public:
  explicit PinnedStore(BackupSettings settings) { set_settings(settings); }

  Status save(std::span<SaveRequest> requests, const ProgressSink& progress) override;
  std::unique_ptr<Backup> retain(std::unique_ptr<Backup> backup) override;
  void trim() override;
  Result<std::unique_ptr<HostPromise>> promise_host(Bytes need) override;
  void host_given_back(Bytes size) noexcept override;
  bool retains_host() const noexcept override { return settings().retain == BackupSettings::Retain::automatic; }
  void count_host_backed(Bytes size, bool parked) noexcept override { count_parked(size, parked); }
  /// Of memory outside of the arena too.
  Bytes backup_bytes() const noexcept override { return {parked_.load(std::memory_order_relaxed)}; }
  Bytes retained_bytes() const noexcept override;

  void set_settings(BackupSettings settings);
  BackupSettings settings() const;

  /// In the child of a fork, which has none of the memory. Takes no lock.
  void abandon_in_child() noexcept { budget_.abandon_in_child(); }

  // For its saves and backups.
  HostBudget& budget() noexcept { return budget_; }
  PinnedArena& arena() noexcept { return arena_; }
  /// Of the program's allocations, before memory is registered.
  RightOfWay& right_of_way() noexcept { return right_of_way_; }
  /// Warns once that the driver refused to register memory. For the save that is under way.
  void tell_of_slow_copies() noexcept;
  void count_parked(Bytes size, bool parked) noexcept;
  /// With `host.retain = none`: memory without a backup goes back at once.
  void release_if_none_is_kept() noexcept;

 private:
  /// Gives slabs without a backup back, unless copies may still be writing to them.
  void release_empty() noexcept;

  mutable std::mutex mutex_;
  RightOfWay right_of_way_;
  BackupSettings settings_;
  HostBudget budget_;  ///< before the arena, whose slabs tell it of their end
  PinnedArena arena_;
  std::atomic<std::uint64_t> parked_{0};
  std::atomic<std::uint64_t> outside_{0};  ///< what the core took of the budget
  bool told_of_slow_copies_ = false;
  std::atomic<bool> in_doubt_{false};  ///< copies may still be writing to slabs that hold nothing
};

}  // namespace lowtide

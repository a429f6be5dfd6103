// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <list>
#include <memory>
#include <mutex>
#include <vector>

#include "allocator/backup/settings.hpp"
#include "allocator/backup/slab.hpp"
#include "allocator/core/backup_store.hpp"

namespace lowtide {

/// Keeps backups in registered host memory. A slab whose backups are gone is kept for the next pause, as far as the
/// last one needed it (`host.retain = auto`), since getting registered memory is what makes a first pause slow.
class PinnedStore final : public BackupStore {
 public:
  explicit PinnedStore(BackupSettings settings) : settings_(settings) {}

  Status save(std::span<SaveRequest> requests, const ProgressSink& progress) override;
  Status begin_load(Backend& backend, AddressRange range, const Backup& backup) override;
  Bytes backup_bytes() const noexcept override;
  Bytes retained_bytes() const noexcept override;

  void set_settings(BackupSettings settings);

 private:
  using Slabs = std::list<std::unique_ptr<Slab>>;
  class PinnedBackup;
  struct Piece {
    Slab* slab;
    AddressRange host;
  };

  Status save_one(SaveRequest& request);
  Result<Piece> take(Backend& backend, Bytes size);
  void give_back(const Piece& piece) noexcept;
  /// Waits for all copies out. The first error; `in_doubt_` says whether any may still be in flight.
  Status finish_copies() noexcept;
  /// Slabs that hold nothing, taken off the list to be released, off the lock: the driver is slow at it.
  Slabs take_empty_slabs() noexcept;
  /// Gives the slabs back to the host; those that the driver does not let go are kept for the next pause.
  void release(Slabs slabs) noexcept;

  mutable std::mutex mutex_;
  BackupSettings settings_;
  Slabs slabs_;
  bool in_doubt_ = false;       ///< copies may still be writing to slabs that hold nothing
  std::vector<Backend*> used_;  ///< where copies were started that may be in flight
};

}  // namespace lowtide

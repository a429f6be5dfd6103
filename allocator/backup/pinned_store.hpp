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

/// Keeps backups in registered host memory. A slab whose backups are gone is kept for the next pause, as far as the last
/// one needed it (`host.retain = auto`), since getting registered memory is what makes a first pause slow.
class PinnedStore final : public BackupStore {
 public:
  explicit PinnedStore(BackupSettings settings) : settings_(settings) {}

  Status save(std::span<SaveRequest> requests, const ProgressSink& progress) override;
  Status begin_load(Backend& backend, AddressRange range, const Backup& backup) override;
  Bytes backup_bytes() const noexcept override;
  Bytes retained_bytes() const noexcept override;

  void set_settings(BackupSettings settings);

 private:
  class PinnedBackup;
  struct Piece {
    Slab* slab;
    AddressRange host;
  };

  Status save_one(SaveRequest& request);
  Result<Piece> take(Backend& backend, Bytes size);
  void give_back(const Piece& piece) noexcept;
  /// Slabs that hold nothing, taken off the list; destroyed by the caller, off the lock.
  std::list<std::unique_ptr<Slab>> take_empty_slabs() noexcept;

  mutable std::mutex mutex_;
  BackupSettings settings_;
  std::list<std::unique_ptr<Slab>> slabs_;
};

}  // namespace lowtide

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>

#include "allocator/backup/backup_file.hpp"
#include "allocator/backup/disk_calls.hpp"
#include "allocator/backup/file_buffers.hpp"
#include "allocator/backup/settings.hpp"
#include "allocator/core/backup_store.hpp"

namespace lowtide {

/// Keeps backups on disk, in a file without a name for each save: past the page cache, so that the host's memory stays
/// free, and gone with the process. What it takes of the host is two buffers. Nothing is kept for the next pause but
/// these: to read a file for a comparison costs as much as to write it.
class FileStore final : public BackupStore {
 public:
  /// `budget` is asked for the buffers' memory, and outlives the store.
  FileStore(HostBudget& budget, BackupSettings backup, DiskSettings disk,
            std::unique_ptr<DiskCalls> calls = std::make_unique<DiskCalls>());
  ~FileStore() override;

  /// Code::refused, with the numbers, if the disk has no room. All content of one call shares a file.
  Status save(std::span<SaveRequest> requests, const ProgressSink& progress) override;
  std::unique_ptr<Backup> retain(std::unique_ptr<Backup>) override { return nullptr; }
  /// The buffers, unless something is parked: its resume shall not want for memory.
  void trim() override;
  Bytes backup_bytes() const noexcept override { return {parked_.load(std::memory_order_relaxed)}; }
  Bytes retained_bytes() const noexcept override { return buffers_.held(); }

  void set_settings(BackupSettings backup, DiskSettings disk);
  /// Where the next file is made.
  std::string folder() const;

  // For its saves and backups.
  Result<std::shared_ptr<BackupFile>> make_file(Bytes size);
  HostBudget& budget() noexcept { return budget_; }
  bool verifies() const;
  FileBuffers& buffers() noexcept { return buffers_; }
  void count_parked(Bytes size, bool parked) noexcept;
  /// With `host.retain = none`: the buffers go back with the last backup.
  void release_if_none_is_kept() noexcept;

 private:
  Status save_all(std::span<SaveRequest> requests, const ProgressSink& progress);

  /// Where the next file is made, and what says so.
  BackupFile::Folder next_folder() const;

  HostBudget& budget_;
  const std::unique_ptr<DiskCalls> calls_;
  /// Where files are made that no setting says where to make: $TMPDIR, else the first of /var/tmp and /tmp that can be
  /// written to. Asked once: a host may change its environment at any time.
  const BackupFile::Folder usual_folder_;
  mutable std::mutex mutex_;
  BackupSettings settings_;
  DiskSettings disk_;
  std::atomic<std::uint64_t> parked_{0};
  FileBuffers buffers_;
};

}  // namespace lowtide

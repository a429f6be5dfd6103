// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "allocator/backup/backup_file.hpp"
#include "allocator/base/page_digest.hpp"
#include "allocator/core/backup_store.hpp"

namespace lowtide {

class FileStore;

/// A part of an extent's content, of at most `digest_page` bytes, and where it lies in a file.
struct FilePage {
  Bytes offset;  ///< in the extent
  Bytes size;
  Bytes at;  ///< in the file, a multiple of its block
  std::shared_ptr<BackupFile> file;
  PageDigest digest;
  bool digest_known = false;

  Bytes end() const noexcept { return offset + size; }
  /// Where its blocks end in the file.
  Bytes blocks_end() const noexcept { return at + round_up(size, BackupFile::block); }
};

/// The pages of one parked extent, in order.
class FileBackup final : public Backup {
 public:
  explicit FileBackup(FileStore& store) : store_(store) {}
  FileBackup(const FileBackup&) = delete;
  FileBackup& operator=(const FileBackup&) = delete;
  ~FileBackup() override;

  Bytes size() const noexcept override;
  Status read(Bytes offset, void* host, Bytes size) const override;
  Status write(Bytes offset, const void* host, Bytes size) override;
  /// The file is read when it returns; only the last copy may go on.
  Status begin_load(Backend& backend, DeviceAddress start) override;
  Status check_loaded(Backend& backend, DeviceAddress start) const override;
  bool join(std::span<const Neighbour> others) override;
  std::unique_ptr<Backup> split(Bytes offset) override;

  std::vector<FilePage>& pages() noexcept { return pages_; }
  /// Its bytes are in the file: from now on they count, and their space is given up with it.
  void set_saved() noexcept;

 private:
  /// How many pages from `first` on lie one after the other in the file and fit into `most`.
  std::size_t run_length(std::size_t first, Bytes most) const noexcept;
  /// The digest of what the file holds.
  Result<PageDigest> digest_in_file(const FilePage& page, const DigestKey& key) const;

  FileStore& store_;
  std::vector<FilePage> pages_;
  bool saved_ = false;
};

}  // namespace lowtide

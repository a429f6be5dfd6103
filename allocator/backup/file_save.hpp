// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "allocator/backup/file_backup.hpp"
#include "allocator/backup/file_store.hpp"

namespace lowtide {

/// One save into a file: `plan`, which copies nothing, then `copy`, then `finish`. The device copies a piece of content
/// into one buffer while the piece before it is written from the other.
class FileSave {
 public:
  FileSave(FileStore& store, std::span<SaveRequest> requests, const ProgressSink& progress)
      : store_(store), requests_(requests), progress_sink_(progress), buffers_(store.buffers()) {}

  /// Finds a place in the file for all content, and has the disk reserve it.
  Status plan();
  Status copy();
  /// After a `copy` with this result: hands out the backups if it was good, else waits until nothing is in flight.
  void finish(const Status& result) noexcept;

 private:
  /// A page, and where its bytes are on the device.
  struct Part {
    FilePage* page;
    Backend* backend;
    AddressRange range;
  };
  using Parts = std::span<Part>;

  void plan_pages();
  /// The parts from `first` on that are copied into one buffer.
  Parts piece_from(std::size_t first);
  Status take_digests();
  Status ask_digests(Parts parts);
  Status begin_copies(Parts piece);
  /// Writes the piece whose copies have ended.
  Status write(Parts piece, unsigned char* memory);
  Status flush_before(Bytes at, Bytes size);

  FileStore& store_;
  std::span<SaveRequest> requests_;
  const ProgressSink& progress_sink_;
  FileBuffers::Use buffers_;
  std::vector<std::unique_ptr<FileBackup>> made_;
  std::vector<Part> parts_;
  Bytes file_size_;
  std::shared_ptr<BackupFile> file_;
  bool host_digests_ = false;  ///< the devices cannot say them
  Bytes flushing_at_;          ///< what was written last
  Bytes flushing_;
  Progress progress_;
};

}  // namespace lowtide

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "allocator/backup/disk_calls.hpp"
#include "allocator/base/file_identity.hpp"
#include "allocator/base/result.hpp"
#include "allocator/base/unique_fd.hpp"

namespace lowtide {

/// A file without a name that holds backups: gone with the process, however that ends. Nothing of it is mapped, so that
/// a disk that fails is an error and no signal. Thread-safe.
///
/// A host that closes its descriptor has ended it: what is asked of it then fails, with Code::corrupt if bytes of
/// backups were in it, and the file that has the number now is left alone.
class BackupFile {
 public:
  /// Offsets, sizes and memory of reads and writes are multiples of it: what a disk takes past the page cache.
  static constexpr Bytes block{4096};

  struct Folder {
    std::string path;
    const char* set_by;  ///< for messages
  };

  /// A file in `folder` with room for `size` bytes. Code::refused, with the numbers, if the disk is too full for them
  /// or the process may have no such file; Code::config if the folder cannot be used. `calls` outlives it.
  static Result<std::shared_ptr<BackupFile>> make(DiskCalls& calls, const Folder& folder, Bytes size);
  BackupFile(DiskCalls& calls, UniqueFd fd, const std::string& folder);
  BackupFile(const BackupFile&) = delete;
  BackupFile& operator=(const BackupFile&) = delete;
  ~BackupFile();

  /// Code::refused if the disk is full after all, Code::driver with the errno if it fails. What was written is on its
  /// way; it is on the disk, and not in the page cache, after `finish_write`.
  Status write(Bytes at, const void* memory, Bytes size);
  Status finish_write(Bytes at, Bytes size);
  /// Code::corrupt if the file ends before.
  Status read(Bytes at, void* memory, Bytes size) const;

  /// `size` more bytes of it are backups' ...
  void use(Bytes size) noexcept { used_.fetch_add(size.value, std::memory_order_relaxed); }
  /// ... and these are no longer: the disk has them again, with the file if it was the last.
  void drop(Bytes at, Bytes size) noexcept;

 private:
  template <class Call>
  Status transfer(const char* name, Bytes at, Bytes size, Call call) const;
  Status reserve(Bytes size) const;
  /// For an error of `is_full`, when `size` bytes from `at` on were to be written.
  Failure no_room(Bytes at, Bytes size, int error) const;
  Failure too_large(Bytes size) const;
  bool is_ours() const noexcept { return identity_.is_behind(fd_.get()); }
  Failure closed_by_host() const;
  /// After it the file goes through the page cache. False if it did before.
  bool leave_direct() const noexcept;
  bool direct() const noexcept;

  DiskCalls& calls_;
  UniqueFd fd_;
  const FileIdentity identity_;
  const std::string folder_;
  std::atomic<std::uint64_t> used_{0};
};

}  // namespace lowtide

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cerrno>
#include <optional>
#include <string>

#include "allocator/base/bytes.hpp"

namespace lowtide {

/// Whether a call of which a backup has no need is not to be had here: the kernel or the file system does not know it,
/// or a sandbox refuses it.
constexpr bool is_unavailable(int error) noexcept {
  return error == EOPNOTSUPP || error == ENOSYS || error == EPERM || error == EACCES;
}

/// What the process's files may grow to (RLIMIT_FSIZE); nothing: there is no limit. Of a write beyond it the kernel
/// tells by a signal that ends the host.
std::optional<Bytes> file_size_limit() noexcept;

/// The system calls by which backups reach a file system; a test puts its own in their place. Thread-safe. What fails
/// answers -1 and errno, and is no cancellation point.
class DiskCalls {
 public:
  virtual ~DiskCalls() = default;

  /// A new file in `folder` that has no name, so that it ends with its descriptor, past the page cache where the file
  /// system can. Its owner closes it. Where files cannot be made without a name it has one for a moment.
  virtual int open_unnamed(const std::string& folder);
  /// Bytes that any user can still write; nothing if the file system does not say. What it keeps back for root is left
  /// to the system: nothing tells whether this root has it (one of a user namespace has not), and elsewhere (btrfs) the
  /// number that includes it counts bytes that nobody can write.
  virtual std::optional<Bytes> free_space(int fd) noexcept;
  /// Makes the file `size` bytes long with all of its space. EOPNOTSUPP where the file system cannot; EFBIG beyond
  /// `file_size_limit`.
  virtual int reserve(int fd, Bytes size) noexcept;
  /// EFBIG if a byte of it lies beyond `file_size_limit`.
  virtual ssize_t write(int fd, const void* memory, Bytes size, Bytes at) noexcept;
  virtual ssize_t read(int fd, void* memory, Bytes size, Bytes at) noexcept;

  // For files that go through the page cache.
  /// Starts to bring a written part to the disk.
  virtual void begin_flush(int fd, Bytes at, Bytes size) noexcept;
  /// Waits until it is there, and takes it out of the page cache.
  virtual int finish_flush(int fd, Bytes at, Bytes size) noexcept;
  /// Takes what was read out of the page cache.
  virtual void drop_cached(int fd, Bytes at, Bytes size) noexcept;
};

}  // namespace lowtide

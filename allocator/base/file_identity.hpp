// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>

namespace lowtide {

/// Which file a descriptor was opened on. The host may close any descriptor of its process, as a daemon does that
/// closes all it knows not, and the next file that it opens gets the number: what is kept for longer is looked at
/// before each use. Who closes it between the look and the use is not noticed.
class FileIdentity {
 public:
  /// Of no file.
  FileIdentity() = default;
  /// Of the file that `fd` is open on; of none if it is on none.
  explicit FileIdentity(int fd) noexcept;

  explicit operator bool() const noexcept { return known_; }
  /// Whether `fd` is open on this file. Preserves errno.
  bool is_behind(int fd) const noexcept;

 private:
  bool known_ = false;
  dev_t device_{};
  ino_t inode_{};
  /// When the file was made, in ns; 0: its file system, or a sandbox, does not say. An inode number alone is that of
  /// the next file as soon as a file without a name is closed.
  std::int64_t made_ = 0;
};

}  // namespace lowtide

// SPDX-License-Identifier: Apache-2.0
#include "allocator/base/file_identity.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>

namespace lowtide {
namespace {

std::int64_t when_made(int fd) noexcept {
  struct statx about {};
  if (::statx(fd, "", AT_EMPTY_PATH, STATX_BTIME, &about) != 0 || (about.stx_mask & STATX_BTIME) == 0) return 0;
  constexpr std::int64_t second = 1'000'000'000;
  return about.stx_btime.tv_sec * second + about.stx_btime.tv_nsec;
}

}  // namespace

FileIdentity::FileIdentity(int fd) noexcept {
  struct stat about {};
  known_ = fd >= 0 && ::fstat(fd, &about) == 0;
  if (!known_) return;
  device_ = about.st_dev;
  inode_ = about.st_ino;
  made_ = when_made(fd);
}

bool FileIdentity::is_behind(int fd) const noexcept {
  const int errno_of_the_caller = errno;
  const FileIdentity now(fd);
  errno = errno_of_the_caller;
  // A sandbox may have come since.
  const bool both_say = made_ != 0 && now.made_ != 0;
  return known_ && now.known_ && now.device_ == device_ && now.inode_ == inode_ && (!both_say || now.made_ == made_);
}

}  // namespace lowtide

// SPDX-License-Identifier: Apache-2.0
#include "allocator/backup/disk_calls.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "allocator/base/unique_fd.hpp"
#include "allocator/core/uncancelled.hpp"

namespace lowtide {
namespace {

off_t offset_of(Bytes at) { return static_cast<off_t>(at.value); }

/// Whether the file may not be so long; errno says so then.
bool is_beyond_limit(Bytes end) noexcept {
  const auto limit = file_size_limit();
  if (!limit || end <= *limit) return false;
  errno = EFBIG;
  return true;
}

}  // namespace

std::optional<Bytes> file_size_limit() noexcept {
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return std::nullopt;
  return Bytes{limit.rlim_cur};
}

int DiskCalls::open_unnamed(const std::string& folder) {
  std::string name = folder + "/lowtide-XXXXXX";
  const Uncancelled uncancelled;
  // O_EXCL: nobody can give it a name later.
  int fd = ::open(folder.c_str(), O_TMPFILE | O_EXCL | O_RDWR | O_CLOEXEC, S_IRUSR | S_IWUSR);
  // What kernels and file systems say that do not know such files.
  if (fd < 0 && (errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL)) {
    fd = ::mkostemp(name.data(), O_CLOEXEC);
    if (fd >= 0) ::unlink(name.c_str());
  }
  fd = above_standard(fd);
  if (fd >= 0) (void)::fcntl(fd, F_SETFL, O_RDWR | O_DIRECT);
  return fd;
}

std::optional<Bytes> DiskCalls::free_space(int fd) noexcept {
  struct statvfs about {};
  if (::fstatvfs(fd, &about) != 0 || about.f_blocks == 0) return std::nullopt;
  return Bytes{about.f_bavail} * about.f_frsize;
}

int DiskCalls::reserve(int fd, Bytes size) noexcept {
  const Uncancelled uncancelled;
  if (is_beyond_limit(size)) return -1;
  int result = -1;
  do {
    result = ::fallocate(fd, 0, 0, offset_of(size));
  } while (result != 0 && errno == EINTR);
  return result;
}

ssize_t DiskCalls::write(int fd, const void* memory, Bytes size, Bytes at) noexcept {
  const Uncancelled uncancelled;
  if (is_beyond_limit(at + size)) return -1;
  return ::pwrite(fd, memory, size.value, offset_of(at));
}

ssize_t DiskCalls::read(int fd, void* memory, Bytes size, Bytes at) noexcept {
  const Uncancelled uncancelled;
  return ::pread(fd, memory, size.value, offset_of(at));
}

void DiskCalls::begin_flush(int fd, Bytes at, Bytes size) noexcept {
  const Uncancelled uncancelled;
  // Only a head start: whoever waits for it learns what went wrong.
  (void)::sync_file_range(fd, offset_of(at), offset_of(size), SYNC_FILE_RANGE_WRITE);
}

int DiskCalls::finish_flush(int fd, Bytes at, Bytes size) noexcept {
  const Uncancelled uncancelled;
  constexpr unsigned all = SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
  const int result = ::sync_file_range(fd, offset_of(at), offset_of(size), all);
  if (result != 0 && errno != EINVAL && errno != ESPIPE && !is_unavailable(errno)) return -1;
  if (result != 0 && ::fdatasync(fd) != 0) return -1;
  drop_cached(fd, at, size);
  return 0;
}

void DiskCalls::drop_cached(int fd, Bytes at, Bytes size) noexcept {
  (void)::posix_fadvise(fd, offset_of(at), offset_of(size), POSIX_FADV_DONTNEED);
}

}  // namespace lowtide

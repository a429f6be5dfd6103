// SPDX-License-Identifier: Apache-2.0
#include "backends/simulated/capacity.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>

#include <cerrno>
#include <cstring>
#include <memory>

namespace lowtide::sim {
namespace {

constexpr const char* share_prefix = "share-";

/// An fcntl lock over the whole file: F_SETLK, F_SETLKW, or F_GETLK to see who holds one.
int lock_file(int fd, int command, struct flock& lock) {
  lock.l_whence = SEEK_SET;
  lock.l_start = 0;
  lock.l_len = 0;
  int answer = 0;
  do {
    answer = ::fcntl(fd, command, &lock);
  } while (answer != 0 && errno == EINTR);
  return answer;
}

bool set_lock(int fd, int command, short type) {
  struct flock lock {};
  lock.l_type = type;
  return lock_file(fd, command, lock) == 0;
}

bool locked_by_another(int fd) {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  return lock_file(fd, F_GETLK, lock) != 0 || lock.l_type != F_UNLCK;
}

Failure cannot(const char* what, const std::string& directory) {
  return fail(
      Error::format(Code::config, "LOWTIDE_SIM_DIR=%s: cannot %s: %s", directory.c_str(), what, std::strerror(errno)));
}

}  // namespace

/// Holds the folder's lock; nothing for a process on its own.
class Capacity::FileLock {
 public:
  explicit FileLock(int fd) : fd_(fd) {
    if (fd_ >= 0) set_lock(fd_, F_SETLKW, F_WRLCK);
  }
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;
  ~FileLock() {
    if (fd_ >= 0) set_lock(fd_, F_SETLK, F_UNLCK);
  }

 private:
  int fd_;
};

Status Capacity::open(std::uint64_t bytes_per_device, const std::string& directory) {
  const std::lock_guard guard(mutex_);
  total_ = bytes_per_device;
  if (directory.empty()) return {};
  if (::mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST) return cannot("make it", directory);
  directory_.reset(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!directory_) return cannot("open it", directory);
  lock_.reset(::openat(directory_.get(), "lock", O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!lock_) return cannot("open the file `lock` in it", directory);
  const FileLock lock(lock_.get());
  struct timespec now {};
  ::clock_gettime(CLOCK_REALTIME, &now);
  share_name_ =
      share_prefix + std::to_string(::getpid()) + "-" + std::to_string(now.tv_sec) + "." + std::to_string(now.tv_nsec);
  share_.reset(::openat(directory_.get(), share_name_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!share_ || !set_lock(share_.get(), F_SETLK, F_WRLCK)) return cannot("make a share in it", directory);
  publish();
  return {};
}

bool Capacity::take(int device, std::uint64_t bytes) {
  const std::lock_guard guard(mutex_);
  const FileLock lock(lock_.get());
  const auto at = static_cast<std::size_t>(device);
  const auto used = mine_[at] + shares_of_others()[at];
  if (used > total_ || bytes > total_ - used) return false;
  mine_[at] += bytes;
  publish();
  return true;
}

void Capacity::give_back(int device, std::uint64_t bytes) {
  const std::lock_guard guard(mutex_);
  const FileLock lock(lock_.get());
  mine_[static_cast<std::size_t>(device)] -= bytes;
  publish();
}

std::uint64_t Capacity::free(int device) {
  const std::lock_guard guard(mutex_);
  const FileLock lock(lock_.get());
  const auto at = static_cast<std::size_t>(device);
  const auto used = mine_[at] + shares_of_others()[at];
  return used > total_ ? 0 : total_ - used;
}

std::uint64_t Capacity::used(int device) {
  const std::lock_guard guard(mutex_);
  return mine_[static_cast<std::size_t>(device)];
}

void Capacity::unlink_share() noexcept {
  if (share_) ::unlinkat(directory_.get(), share_name_.c_str(), 0);
}

Capacity::Shares Capacity::shares_of_others() {
  Shares sum{};
  if (!directory_) return sum;
  // A folder has one read position; opening it anew starts at the first entry.
  const int fd = ::openat(directory_.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const auto close = [](DIR* open) { ::closedir(open); };
  const std::unique_ptr<DIR, decltype(close)> entries(fd < 0 ? nullptr : ::fdopendir(fd), close);
  if (!entries) return sum;
  while (const dirent* entry = ::readdir(entries.get())) {
    // Our own file is not opened again: closing any descriptor of it would end our lock.
    if (std::strncmp(entry->d_name, share_prefix, std::strlen(share_prefix)) != 0) continue;
    if (share_name_ != entry->d_name) add_share_of(entry->d_name, sum);
  }
  return sum;
}

void Capacity::add_share_of(const char* name, Shares& sum) {
  const UniqueFd file(::openat(directory_.get(), name, O_RDWR | O_CLOEXEC));
  if (!file) return;
  if (!locked_by_another(file.get())) {
    ::unlinkat(directory_.get(), name, 0);
    return;
  }
  Shares theirs{};
  if (::pread(file.get(), theirs.data(), sizeof theirs, 0) != static_cast<ssize_t>(sizeof theirs)) return;
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += theirs[i];
}

void Capacity::publish() {
  if (!share_) return;
  // A write of 128 bytes to a file of that size fails only with the disk; the next one repairs it.
  [[maybe_unused]] const auto written = ::pwrite(share_.get(), mine_.data(), sizeof mine_, 0);
}

}  // namespace lowtide::sim

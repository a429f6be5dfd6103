// SPDX-License-Identifier: Apache-2.0
#include "allocator/backup/host_row.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <limits>
#include <vector>

#include "allocator/base/unique_fd.hpp"

namespace lowtide {
namespace {

/// Half of all offsets, for what is held; the other half is for what is to come.
constexpr std::int64_t half = std::int64_t{1} << 62;
/// More than a process holds, twice over; leaves slots for a quarter of a million processes.
constexpr std::int64_t slot_width = std::int64_t{1} << 44;
constexpr std::int64_t slots = half / slot_width;

/// Locks that are looked at. No node has so many processes of ours; each costs a walk over all of them.
constexpr int most_locks = 4096;

constexpr std::int64_t length_of(Bytes bytes) noexcept {
  return static_cast<std::int64_t>(std::min(bytes.value, std::uint64_t{slot_width} / 2));
}

struct flock range(short type, std::int64_t start, std::int64_t length) noexcept {
  struct flock lock {};  // l_pid is 0, as these locks want it
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = start;
  lock.l_len = length;
  return lock;
}

bool set(int fd, short type, std::int64_t start, std::int64_t length) noexcept {
  auto lock = range(type, start, length);
  return ::fcntl(fd, F_OFD_SETLK, &lock) == 0;
}

/// A lock of another description in [start, start + length); one of type F_UNLCK if there is none, or on an error.
struct flock find(int fd, std::int64_t start, std::int64_t length) noexcept {
  auto lock = range(F_WRLCK, start, length);
  if (::fcntl(fd, F_OFD_GETLK, &lock) != 0) lock.l_type = F_UNLCK;
  return lock;
}

/// Makes the lock from `start` as long as `now` says; it is `before` bytes long.
bool resize(int fd, std::int64_t start, std::int64_t before, std::int64_t now) noexcept {
  if (now > before) return set(fd, F_RDLCK, start + before, now - before);
  return now == before || set(fd, F_UNLCK, start + now, before - now);
}

/// Calls `visit` with the length of each lock of others that starts a slot in the half from `start` on.
template <class Visit>
void for_each_lock(int fd, std::int64_t start, Visit visit) {
  struct Span {
    std::int64_t start;
    std::int64_t length;
  };
  std::vector<Span> unseen{{start, half}};
  for (int looked_at = 0; !unseen.empty() && looked_at < most_locks; ++looked_at) {
    const auto span = unseen.back();
    unseen.pop_back();
    const auto found = find(fd, span.start, span.length);
    if (found.l_type == F_UNLCK) continue;
    // Anybody may lock anything: what is no slot's is no process of ours. A length of 0 reaches to the end.
    const bool ours = found.l_start % slot_width == 0 && found.l_len > 0 && found.l_len < slot_width;
    if (ours) visit(found.l_len);
    if (found.l_start > span.start) unseen.push_back({span.start, found.l_start - span.start});
    if (found.l_len <= 0) continue;
    const auto left = span.length - (found.l_start - span.start) - found.l_len;
    if (left > 0) unseen.push_back({found.l_start + found.l_len, left});
  }
}

std::int64_t random_slot() noexcept {
  std::uint64_t number = 0;
  if (::getrandom(&number, sizeof(number), GRND_NONBLOCK) != sizeof(number)) {
    timespec now{};
    ::clock_gettime(CLOCK_MONOTONIC, &now);
    number = static_cast<std::uint64_t>(now.tv_nsec) + static_cast<std::uint64_t>(::getpid()) * 7919;
  }
  return static_cast<std::int64_t>(number % static_cast<std::uint64_t>(slots));
}

}  // namespace

bool HostRow::open(const std::string& directory) noexcept {
  if (directory == directory_ && is_open()) return true;
  close();
  try {
    directory_ = directory;
  } catch (...) {
    errno = ENOMEM;
    return false;
  }
  UniqueFd fd(above_standard(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)));
  identity_ = FileIdentity(fd.get());
  if (!identity_) return false;
  published_ = {};
  fd_.store(fd.release());
  if (take_slot()) return true;
  const int error = errno;
  close();
  errno = error;
  return false;
}

bool HostRow::take_slot() noexcept {
  constexpr int attempts = 64;
  const int fd = fd_.load();
  for (int attempt = 0; attempt < attempts; ++attempt) {
    slot_ = random_slot() * slot_width;
    // First taken, then looked at: of two that take the same slot at once, at least one sees the other.
    if (!set(fd, F_RDLCK, slot_, 1)) return false;
    auto other = range(F_WRLCK, slot_, slot_width);
    if (::fcntl(fd, F_OFD_GETLK, &other) != 0) return false;
    if (other.l_type == F_UNLCK) return true;
    set(fd, F_UNLCK, slot_, 1);
  }
  errno = EAGAIN;
  return false;
}

bool HostRow::is_open() const noexcept { return identity_.is_behind(fd_.load()); }

void HostRow::close() noexcept {
  const bool still_ours = is_open();
  const int fd = fd_.exchange(-1);
  if (still_ours) ::close(fd);
}

bool HostRow::lock(std::chrono::steady_clock::time_point deadline) noexcept {
  constexpr timespec pause{0, 1'000'000};
  if (!is_open()) return true;
  while (::flock(fd_.load(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) return false;
    if (std::chrono::steady_clock::now() >= deadline) return false;
    ::nanosleep(&pause, nullptr);
  }
  return true;
}

void HostRow::unlock() noexcept {
  if (is_open()) ::flock(fd_.load(), LOCK_UN);
}

bool HostRow::publish(Share share) noexcept {
  if (!is_open()) return false;
  const int fd = fd_.load();
  // The first byte says that the slot is taken.
  const bool held = resize(fd, slot_, 1 + length_of(published_.held), 1 + length_of(share.held));
  if (held) published_.held = share.held;
  const bool coming = resize(fd, half + slot_, length_of(published_.coming), length_of(share.coming));
  if (coming) published_.coming = share.coming;
  return held && coming;
}

HostRow::Others HostRow::others() const noexcept {
  Others others;
  if (!is_open()) return others;
  const auto bytes = [](std::int64_t length) { return Bytes{static_cast<std::uint64_t>(length)}; };
  try {
    for_each_lock(fd_.load(), half, [&](std::int64_t length) {
      others.coming += bytes(length);
      ++others.awaiting;
    });
    for_each_lock(fd_.load(), 0, [&](std::int64_t length) {
      others.held += bytes(length - 1);
      if (length > 1) ++others.holders;
    });
  } catch (...) {  // no memory for the list of spans: what was seen so far is the answer
  }
  return others;
}

void HostRow::abandon_in_child() noexcept { close(); }

}  // namespace lowtide

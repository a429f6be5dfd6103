// SPDX-License-Identifier: Apache-2.0
#include "allocator/policy/ledger_file.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <ctime>
#include <memory>
#include <string_view>
#include <utility>

#include "allocator/base/unique_fd.hpp"

namespace lowtide {
namespace {

// Locked bytes mean nothing but themselves: they lie where the file has none.
constexpr off_t member = off_t{1} << 40;
constexpr off_t owned(unsigned slot) { return member + 1 + slot; }
constexpr off_t alive(unsigned slot) { return member + 1 + ledger::most_processes + slot; }

bool set_lock(int fd, short type, off_t at) noexcept {
  struct flock lock {};  // l_pid is 0, as these locks want it
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = at;
  lock.l_len = 1;
  return ::fcntl(fd, F_OFD_SETLK, &lock) == 0;
}

bool others_lock(int fd, off_t at) noexcept {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = at;
  lock.l_len = 1;
  return ::fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

bool held_by_somebody(int error) noexcept { return error == EAGAIN || error == EACCES; }

Failure failure(Code code, const std::string& path, const char* what) {
  return fail(Error::format(code, "ledger %s: %s", path.c_str(), what));
}

Failure failure(const std::string& path, const char* call) {
  return fail(Error::format(Code::unsupported, "ledger %s: %s: %s", path.c_str(), call, std::strerror(errno)));
}

/// Why what is open is not to be trusted; null if it is.
const char* distrust(int fd, mode_t kind) noexcept {
  struct stat status {};
  if (::fstat(fd, &status) != 0) return "cannot be looked at";
  if ((status.st_mode & S_IFMT) != kind) return "is not what it should be: not used";
  if (status.st_uid != ::geteuid()) return "belongs to another user: not used";
  if ((status.st_mode & (S_IRWXG | S_IRWXO)) != 0) return "is open to other users: chmod go= it";
  return nullptr;
}

Result<UniqueFd> open_folder(const std::string& folder) {
  if (::mkdir(folder.c_str(), S_IRWXU) != 0 && errno != EEXIST) return failure(folder, "mkdir");
  UniqueFd fd(above_standard(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)));
  if (!fd && errno == ENOENT) return UniqueFd();  // the last one out has just removed it
  if (!fd) return failure(folder, "open");
  if (const char* why = distrust(fd.get(), S_IFDIR)) return failure(Code::refused, folder, why);
  return fd;
}

bool has_name(int fd) noexcept {
  struct stat status {};
  return ::fstat(fd, &status) == 0 && status.st_nlink > 0;
}

bool has_size(int fd) noexcept {
  struct stat status {};
  return ::fstat(fd, &status) == 0 && status.st_size == static_cast<off_t>(ledger::file_bytes);
}

bool remove_name_of(int fd, int folder, const char* name) noexcept {
  struct stat named {};
  struct stat open {};
  if (::fstatat(folder, name, &named, AT_SYMLINK_NOFOLLOW) != 0 || ::fstat(fd, &open) != 0) return false;
  return named.st_dev == open.st_dev && named.st_ino == open.st_ino && ::unlinkat(folder, name, 0) == 0;
}

// Of those that leave at once, each gives its membership up first, so that whoever looks last finds itself alone. Who
// opens the file at that moment waits for the lock, and then sees that the file has lost its name.
bool remove_if_unused(int fd, int folder, const char* name) noexcept {
  return set_lock(fd, F_WRLCK, member) && remove_name_of(fd, folder, name);
}

/// What killed processes left, of devices that nobody has come back to.
void remove_unused_in(int folder) noexcept {
  const int copy = ::openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const std::unique_ptr<DIR, int (*)(DIR*)> list(::fdopendir(copy), ::closedir);
  if (!list) return;
  const auto prefix = "ledger-" + std::to_string(ledger::layout_version) + '-';
  while (const auto* entry = ::readdir(list.get())) {
    if (!std::string_view(entry->d_name).starts_with(prefix)) continue;
    const UniqueFd fd(::openat(folder, entry->d_name, O_RDWR | O_NOFOLLOW | O_CLOEXEC));
    if (fd) remove_if_unused(fd.get(), folder, entry->d_name);
  }
}

}  // namespace

Status LedgerFile::open() {
  constexpr int attempts = 500;
  constexpr timespec pause{0, 1'000'000};
  for (int i = 0; i < attempts; ++i) {
    auto joined = join();
    if (joined && *joined) return take_slot();
    close();
    if (!joined) return fail(joined.error());
    ::nanosleep(&pause, nullptr);
  }
  return failure(Code::busy, folder_ + '/' + name_, "somebody who sets it up is not done after 0.5 s");
}

Result<bool> LedgerFile::join() {
  const auto directory = open_folder(folder_);
  if (!directory) return fail(directory.error());
  if (!*directory) return false;
  const auto path = folder_ + '/' + name_;
  const int fd = above_standard(
      ::openat(directory->get(), name_.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, S_IRUSR | S_IWUSR));
  if (fd < 0 && errno == ENOENT) return false;
  if (fd < 0) return failure(path, "open");
  identity_ = FileIdentity(fd);
  fd_ = fd;
  if (const char* why = distrust(fd, S_IFREG)) return failure(Code::refused, path, why);
  const bool alone = set_lock(fd, F_WRLCK, member);
  if (!alone && !held_by_somebody(errno)) return failure(path, "lock");
  if (!alone && !set_lock(fd, F_RDLCK, member)) return false;
  if (!has_name(fd)) return false;
  if (alone) {
    if (auto status = set_up(); !status) return fail(status.error());
    if (!set_lock(fd, F_RDLCK, member)) return failure(path, "lock");
  }
  if (!has_size(fd)) return false;
  // A mapping keeps the description alive that it was made from, in a fork child too: not the one with the locks.
  const UniqueFd mapped(::openat(directory->get(), name_.c_str(), O_RDWR | O_NOFOLLOW | O_CLOEXEC));
  if (!mapped || !identity_.is_behind(mapped.get())) return false;
  void* const base = ::mmap(nullptr, ledger::file_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, mapped.get(), 0);
  if (base == MAP_FAILED) return failure(path, "mmap");
  base_ = static_cast<char*>(base);
  return header().magic.load(std::memory_order_acquire) == ledger::magic;
}

/// Also of a file that its last user left by being killed.
Status LedgerFile::set_up() {
  const auto path = folder_ + '/' + name_;
  if (::ftruncate(fd_, static_cast<off_t>(ledger::file_bytes)) != 0) return failure(path, "ftruncate");
  // A page that the file system has no room for would be a SIGBUS of the host.
  if (const int error = ::posix_fallocate(fd_, 0, ledger::header_bytes); error != 0) {
    errno = error;
    return failure(path, "no room for it");
  }
  alignas(ledger::Header) char fresh[sizeof(ledger::Header)] = {};
  std::memcpy(fresh, &ledger::magic, sizeof ledger::magic);
  if (::pwrite(fd_, fresh, sizeof fresh, 0) != sizeof fresh) return failure(path, "write");
  return {};
}

Status LedgerFile::take_slot() {
  const auto path = folder_ + '/' + name_;
  for (unsigned i = 0; i < ledger::most_processes; ++i) {
    if (!set_lock(fd_, F_WRLCK, owned(i))) continue;
    const auto start = static_cast<off_t>(ledger::header_bytes + i * ledger::slot_bytes);
    if (const int error = ::posix_fallocate(fd_, start, ledger::slot_bytes); error != 0) {
      errno = error;
      return failure(path, "no room for it");
    }
    for (auto& claim : slot(i).claims) claim.word.store(0);
    auto& sequence = slot(i).sequence;
    const auto next = sequence.load() + 1;
    for (auto& word : slot(i).said[next % 2]) word.store(0, std::memory_order_relaxed);
    sequence.store(next);
    if (!set_lock(fd_, F_WRLCK, alive(i))) return failure(path, "lock");
    auto top = header().top.load();
    while (top < i + 1 && !header().top.compare_exchange_weak(top, i + 1)) continue;
    own_ = i;
    has_slot_ = true;
    return {};
  }
  return fail(
      Error::format(Code::unsupported, "ledger %s: all its %u places are taken", path.c_str(), ledger::most_processes));
}

bool LedgerFile::is_joined() const noexcept {
  return has_slot_ && identity_.is_behind(fd_) && has_name(fd_) && has_size(fd_);
}

bool LedgerFile::is_alive(unsigned index) const noexcept { return index == own_ || others_lock(fd_, alive(index)); }

LedgerFile::~LedgerFile() { close(); }

void LedgerFile::close() noexcept {
  leave();
  if (base_ != nullptr) ::munmap(std::exchange(base_, nullptr), ledger::file_bytes);
}

void LedgerFile::leave() noexcept {
  const int fd = fd_.exchange(-1);
  if (fd < 0 || !identity_.is_behind(fd)) return;
  const UniqueFd folder(::open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  // A file that somebody has cut off is of use to nobody: without its name, all that use it find out.
  if (folder && has_slot_ && !has_size(fd)) remove_name_of(fd, folder.get(), name_.c_str());
  set_lock(fd, F_UNLCK, member);
  if (folder && remove_if_unused(fd, folder.get(), name_.c_str())) {
    remove_unused_in(folder.get());
    ::rmdir(folder_.c_str());
  }
  ::close(fd);
}

void LedgerFile::abandon_in_child() noexcept {
  const int fd = fd_.exchange(-1);
  if (identity_.is_behind(fd)) ::close(fd);
}

}  // namespace lowtide

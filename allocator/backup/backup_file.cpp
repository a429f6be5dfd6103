// SPDX-License-Identifier: Apache-2.0
#include "allocator/backup/backup_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cinttypes>
#include <cstring>

#include "allocator/core/uncancelled.hpp"

namespace lowtide {
namespace {

bool is_full(int error) { return error == ENOSPC || error == EDQUOT || error == EFBIG; }

Failure disk_error(const char* call, int error, const std::string& folder) {
  return fail(
      Error(Code::driver, error, call,
            Error::format(Code::driver, "a backup's %s failed: %s, in %s", call, std::strerror(error), folder.c_str())
                .message()));
}

/// The part of what a call did after which the next one can begin.
Bytes whole_blocks(ssize_t done) {
  return {static_cast<std::uint64_t>(done) / BackupFile::block.value * BackupFile::block.value};
}

}  // namespace

BackupFile::BackupFile(DiskCalls& calls, UniqueFd fd, const std::string& folder)
    : calls_(calls), fd_(std::move(fd)), folder_(folder) {}

Result<std::shared_ptr<BackupFile>> BackupFile::make(DiskCalls& calls, const std::string& folder, Bytes size) {
  UniqueFd fd(calls.open_unnamed(folder));
  if (!fd) {
    const int error = errno;
    if (is_full(error) || error == EMFILE || error == ENFILE || error == ENOMEM) {
      return fail(Error::format(Code::refused, "no file for a backup of %s: %s, in %s. Nothing changed",
                                to_text(size).c_str(), std::strerror(error), folder.c_str()));
    }
    return fail(Error::format(Code::config, "disk.path: no file for a backup can be made: %s, in %s",
                              std::strerror(error), folder.c_str()));
  }
  auto file = std::make_shared<BackupFile>(calls, std::move(fd), folder);
  if (auto status = file->reserve(size); !status) return fail(status.error());
  return file;
}

BackupFile::~BackupFile() {
  const Uncancelled uncancelled;
  // A child of a fork may still have a descriptor, which would keep the space.
  (void)!::ftruncate(fd_.get(), 0);
  fd_.reset();
}

Status BackupFile::reserve(Bytes size) const {
  // Asked first: a reservation that fails half-way fills the disk for everybody, if only for a moment.
  const auto free = calls_.free_space(fd_.get());
  if (free && *free < size) return no_room(size, ENOSPC);
  if (calls_.reserve(fd_.get(), size) == 0) return {};
  const int error = errno;
  if (is_full(error)) return no_room(size, error);
  if (error == EOPNOTSUPP || error == ENOSYS || error == EINVAL) return {};
  return disk_error("fallocate", error, folder_);
}

Failure BackupFile::no_room(Bytes size, int error) const {
  const auto free = calls_.free_space(fd_.get());
  return fail(Error::format(Code::refused, "the disk has no room for a backup: %s needed, %s free: %s, in %s",
                            to_text(size).c_str(), free ? to_text(*free).c_str() : "unknown", std::strerror(error),
                            folder_.c_str()));
}

bool BackupFile::direct() const noexcept { return (::fcntl(fd_.get(), F_GETFL) & O_DIRECT) != 0; }

bool BackupFile::leave_direct() const noexcept { return direct() && ::fcntl(fd_.get(), F_SETFL, O_RDWR) == 0; }

template <class Call>
Status BackupFile::transfer(const char* name, Bytes size, Call call) const {
  Bytes done;
  while (done < size) {
    const ssize_t count = call(done);
    const int error = count < 0 ? errno : EIO;
    const Bytes more = count > 0 ? whole_blocks(count) : Bytes{};
    done += more;
    if (more.value > 0 || (count < 0 && error == EINTR)) continue;
    // Some take O_DIRECT and then no read or write of this alignment.
    if (count < 0 && error == EINVAL && leave_direct()) continue;
    if (is_full(error)) return no_room(size - done, error);
    return disk_error(name, error, folder_);
  }
  return {};
}

Status BackupFile::write(Bytes at, const void* memory, Bytes size) {
  const auto* from = static_cast<const unsigned char*>(memory);
  auto status = transfer(
      "pwrite", size, [&](Bytes done) { return calls_.write(fd_.get(), from + done.value, size - done, at + done); });
  if (status && !direct()) calls_.begin_flush(fd_.get(), at, size);
  return status;
}

Status BackupFile::finish_write(Bytes at, Bytes size) {
  if (direct() || calls_.finish_flush(fd_.get(), at, size) == 0) return {};
  const int error = errno;
  return is_full(error) ? Status(no_room(size, error)) : Status(disk_error("sync_file_range", error, folder_));
}

Status BackupFile::read(Bytes at, void* memory, Bytes size) const {
  auto* to = static_cast<unsigned char*>(memory);
  Status ended;
  auto status = transfer("pread", size, [&](Bytes done) {
    const ssize_t count = calls_.read(fd_.get(), to + done.value, size - done, at + done);
    if (count == 0) {
      ended = fail(Error::format(Code::corrupt, "the file of a backup ends at byte %" PRIu64 " before its content",
                                 (at + done).value));
    }
    return count;
  });
  if (!ended) return ended;
  if (status && !direct()) calls_.drop_cached(fd_.get(), at, size);
  return status;
}

void BackupFile::drop(Bytes at, Bytes size) noexcept {
  if (used_.fetch_sub(size.value, std::memory_order_acq_rel) == size.value) return;
  const Uncancelled uncancelled;
  // Where the file system cannot, the space comes back with the file.
  (void)::fallocate(fd_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(at.value),
                    static_cast<off_t>(round_up(size, block).value));
}

}  // namespace lowtide

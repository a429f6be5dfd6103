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

/// The part of what a call did after which the next one begins: whole blocks if it did any, as O_DIRECT wants them. A
/// disk that becomes full within a block does the part that fits, time and again: the error comes behind it.
Bytes step_after(ssize_t done) {
  const Bytes all{static_cast<std::uint64_t>(done)};
  const Bytes blocks{all.value / BackupFile::block.value * BackupFile::block.value};
  return blocks.value > 0 ? blocks : all;
}

}  // namespace

BackupFile::BackupFile(DiskCalls& calls, UniqueFd fd, const std::string& folder)
    : calls_(calls), fd_(std::move(fd)), identity_(fd_.get()), folder_(folder) {}

Result<std::shared_ptr<BackupFile>> BackupFile::make(DiskCalls& calls, const Folder& folder, Bytes size) {
  UniqueFd fd(calls.open_unnamed(folder.path));
  if (!fd) {
    const int error = errno;
    if (is_full(error) || error == EMFILE || error == ENFILE || error == ENOMEM) {
      return fail(Error::format(Code::refused, "no file for a backup of %s: %s, in %s. Nothing changed",
                                to_text(size).c_str(), std::strerror(error), folder.path.c_str()));
    }
    return fail(Error::format(Code::config, "%s: no file for a backup can be made: %s, in %s", folder.set_by,
                              std::strerror(error), folder.path.c_str()));
  }
  auto file = std::make_shared<BackupFile>(calls, std::move(fd), folder.path);
  if (auto status = file->reserve(size); !status) return fail(status.error());
  return file;
}

BackupFile::~BackupFile() {
  const Uncancelled uncancelled;
  if (!is_ours()) {
    (void)fd_.release();
    return;
  }
  // A child of a fork may still have a descriptor, which would keep the space.
  (void)!::ftruncate(fd_.get(), 0);
  fd_.reset();
}

Status BackupFile::reserve(Bytes size) const {
  // Asked first: a reservation that fails half-way fills the disk for everybody, if only for a moment.
  const auto free = calls_.free_space(fd_.get());
  if (free && *free < size) return no_room({}, size, ENOSPC);
  if (calls_.reserve(fd_.get(), size) == 0) return {};
  const int error = errno;
  if (is_full(error)) return no_room({}, size, error);
  if (error == EINVAL || is_unavailable(error)) return {};
  return disk_error("fallocate", error, folder_);
}

Failure BackupFile::no_room(Bytes at, Bytes size, int error) const {
  if (error == EFBIG) return too_large(at + size);
  const auto free = calls_.free_space(fd_.get());
  return fail(Error::format(Code::refused, "the disk has no room for a backup: %s needed, %s free: %s, in %s",
                            to_text(size).c_str(), free ? to_text(*free).c_str() : "unknown", std::strerror(error),
                            folder_.c_str()));
}

Failure BackupFile::too_large(Bytes size) const {
  const auto limit = file_size_limit();
  if (limit && *limit < size) {
    return fail(Error::format(Code::refused,
                              "a backup needs a file of %s, and this process's files may grow to %s (RLIMIT_FSIZE, "
                              "ulimit -f), in %s",
                              to_text(size).c_str(), to_text(*limit).c_str(), folder_.c_str()));
  }
  return fail(Error::format(Code::refused, "a backup needs a file of %s, which the file system does not take, in %s",
                            to_text(size).c_str(), folder_.c_str()));
}

Failure BackupFile::closed_by_host() const {
  const Bytes lost{used_.load(std::memory_order_relaxed)};
  if (lost == Bytes{}) {
    return fail(
        Error(Code::driver, EBADF, "fstat",
              "the program closed the descriptor of the file to which backups were being written: none is lost"));
  }
  return fail(Error::format(Code::corrupt,
                            "the program closed the descriptor of the file with the backups: %s are lost, in %s",
                            to_text(lost).c_str(), folder_.c_str()));
}

bool BackupFile::direct() const noexcept { return (::fcntl(fd_.get(), F_GETFL) & O_DIRECT) != 0; }

bool BackupFile::leave_direct() const noexcept { return direct() && ::fcntl(fd_.get(), F_SETFL, O_RDWR) == 0; }

template <class Call>
Status BackupFile::transfer(const char* name, Bytes at, Bytes size, Call call) const {
  Bytes done;
  while (done < size) {
    if (!is_ours()) return closed_by_host();
    const ssize_t count = call(done);
    const int error = count < 0 ? errno : EIO;
    const Bytes more = count > 0 ? step_after(count) : Bytes{};
    done += more;
    if (more.value > 0 || (count < 0 && error == EINTR)) continue;
    // Some take O_DIRECT and then no read or write of this alignment.
    if (count < 0 && error == EINVAL && leave_direct()) continue;
    if (is_full(error)) return no_room(at + done, size - done, error);
    return disk_error(name, error, folder_);
  }
  return {};
}

Status BackupFile::write(Bytes at, const void* memory, Bytes size) {
  const auto* from = static_cast<const unsigned char*>(memory);
  auto status = transfer("pwrite", at, size, [&](Bytes done) {
    return calls_.write(fd_.get(), from + done.value, size - done, at + done);
  });
  if (status && !direct()) calls_.begin_flush(fd_.get(), at, size);
  return status;
}

Status BackupFile::finish_write(Bytes at, Bytes size) {
  if (!is_ours()) return closed_by_host();
  if (direct() || calls_.finish_flush(fd_.get(), at, size) == 0) return {};
  const int error = errno;
  return is_full(error) ? Status(no_room(at, size, error)) : Status(disk_error("sync_file_range", error, folder_));
}

Status BackupFile::read(Bytes at, void* memory, Bytes size) const {
  auto* to = static_cast<unsigned char*>(memory);
  Status ended;
  auto status = transfer("pread", at, size, [&](Bytes done) {
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
  if (used_.fetch_sub(size.value, std::memory_order_acq_rel) == size.value || !is_ours()) return;
  const Uncancelled uncancelled;
  // Where the file system cannot, the space comes back with the file.
  (void)::fallocate(fd_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(at.value),
                    static_cast<off_t>(round_up(size, block).value));
}

}  // namespace lowtide

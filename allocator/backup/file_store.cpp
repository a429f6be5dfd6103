// SPDX-License-Identifier: Apache-2.0
#include "allocator/backup/file_store.hpp"

#include <unistd.h>

#include <new>

#include "allocator/backup/file_save.hpp"
#include "allocator/base/env.hpp"

namespace lowtide {
namespace {

BackupFile::Folder usual_folder() {
  if (const auto set = env("TMPDIR"); set && set->starts_with('/')) return {std::string(*set), "TMPDIR"};
  return {::access("/var/tmp", W_OK | X_OK) == 0 ? "/var/tmp" : "/tmp", "disk.path is not set"};
}

}  // namespace

FileStore::FileStore(HostBudget& budget, BackupSettings backup, DiskSettings disk, std::unique_ptr<DiskCalls> calls)
    : budget_(budget),
      calls_(std::move(calls)),
      usual_folder_(usual_folder()),
      settings_(backup),
      disk_(std::move(disk)),
      buffers_(budget) {}

FileStore::~FileStore() { buffers_.release(); }

Status FileStore::save(std::span<SaveRequest> requests, const ProgressSink& progress) {
  if (requests.empty()) return {};
  auto result = save_all(requests, progress);
  release_if_none_is_kept();
  return result;
}

Status FileStore::save_all(std::span<SaveRequest> requests, const ProgressSink& progress) {
  Status result;
  try {
    FileSave save(*this, requests, progress);
    if (auto status = save.plan(); !status) return status;
    try {
      result = save.copy();
    } catch (const std::bad_alloc&) {
      result = no_bookkeeping_memory();
    }
    save.finish(result);
  } catch (const std::bad_alloc&) {
    return no_bookkeeping_memory();  // of the plan: nothing was copied
  }
  if (!result) {
    for (auto& request : requests) request.backup.reset();
  }
  return result;
}

void FileStore::trim() {
  if (backup_bytes() == Bytes{}) buffers_.release();
}

void FileStore::release_if_none_is_kept() noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (settings_.retain != BackupSettings::Retain::none) return;
  }
  trim();
}

void FileStore::count_parked(Bytes size, bool parked) noexcept {
  if (parked)
    parked_.fetch_add(size.value, std::memory_order_relaxed);
  else
    parked_.fetch_sub(size.value, std::memory_order_relaxed);
}

void FileStore::set_settings(BackupSettings backup, DiskSettings disk) {
  const std::lock_guard lock(mutex_);
  settings_ = backup;
  disk_ = std::move(disk);
}

std::string FileStore::folder() const { return next_folder().path; }

BackupFile::Folder FileStore::next_folder() const {
  const std::lock_guard lock(mutex_);
  return disk_.path.empty() ? usual_folder_ : BackupFile::Folder{disk_.path, "disk.path"};
}

Result<std::shared_ptr<BackupFile>> FileStore::make_file(Bytes size) {
  return BackupFile::make(*calls_, next_folder(), size);
}

bool FileStore::verifies() const {
  const std::lock_guard lock(mutex_);
  return settings_.verify;
}

}  // namespace lowtide

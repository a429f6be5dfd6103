// SPDX-License-Identifier: Apache-2.0
#include "allocator/backup/backup_stores.hpp"

#include <utility>

#include "allocator/backup/pages.hpp"

namespace lowtide {

Status BackupStores::save(std::span<SaveRequest> requests, const ProgressSink& progress) {
  std::vector<SaveRequest> host;
  std::vector<SaveRequest> disk;
  host.reserve(requests.size());
  disk.reserve(requests.size());
  for (SaveRequest& request : requests) (request.place == Place::disk ? disk : host).push_back(std::move(request));
  auto status = save_each(host, disk, progress);
  auto next_host = host.begin();
  auto next_disk = disk.begin();
  for (SaveRequest& request : requests) {
    request = std::move(request.place == Place::disk ? *next_disk++ : *next_host++);
    if (!status) request.backup = retain(std::move(request.backup));
  }
  return status;
}

/// Host memory first: it is refused at once and copied to fast, while a disk is slow to find out.
Status BackupStores::save_each(std::span<SaveRequest> host, std::span<SaveRequest> disk, const ProgressSink& progress) {
  if (!progress || host.empty() || disk.empty()) {
    auto status = host_.save(host, progress);
    return status ? disk_.save(disk, progress) : status;
  }
  const Bytes in_host = content_of(host);
  const Bytes total = in_host + content_of(disk);
  auto status = host_.save(host, [&](const Progress& part) { progress({part.done, total}); });
  if (!status) return status;
  return disk_.save(disk, [&](const Progress& part) { progress({in_host + part.done, total}); });
}

/// A file is not kept: only the host's store takes what is its own.
std::unique_ptr<Backup> BackupStores::retain(std::unique_ptr<Backup> backup) { return host_.retain(std::move(backup)); }

void BackupStores::trim() {
  host_.trim();
  disk_.trim();
}

}  // namespace lowtide

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "allocator/backup/file_backup.hpp"
#include "allocator/backup/file_store.hpp"
#include "tests/unit/faulty_disk.hpp"
#include "tests/unit/host_device.hpp"

// What the tests of the disk store share.
namespace lowtide::test {

/// A folder for files of a test, where temporary files are.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "lowtide-test-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("no folder");
    path = name;
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() { std::filesystem::remove_all(path); }
  bool empty() const { return std::filesystem::is_empty(path); }

  std::string path;
};

/// A disk store over a device in host memory and a disk that can fail.
struct DiskWorld {
  explicit DiskWorld(BackupSettings backup = {}) : store(budget, backup, {folder.path}, take_disk()) {}

  Status save(std::span<SaveRequest> requests, const ProgressSink& progress = {}) {
    return store.save(requests, progress);
  }
  Status save(SaveRequest& request) { return store.save({&request, 1}, {}); }
  /// Disk space of the last file.
  Bytes allocated() const {
    struct stat about {};
    return ::fstat(disk->fd, &about) == 0 ? Bytes{static_cast<std::uint64_t>(about.st_blocks)} * 512 : Bytes{};
  }
  bool file_is_open() const { return ::fcntl(disk->fd, F_GETFD) >= 0; }

  TemporaryFolder folder;
  HostDevice device;
  HostBudget budget;
  std::unique_ptr<FaultyDisk> own_disk = std::make_unique<FaultyDisk>();
  FaultyDisk* disk = own_disk.get();
  FileStore store;

 private:
  std::unique_ptr<DiskCalls> take_disk() { return std::move(own_disk); }
};

/// Parts of any size at any place of `content`.
inline SaveRequest request_for_parts(Backend& device, const KnownContent& content,
                                     std::initializer_list<std::pair<std::uint64_t, std::uint64_t>> parts) {
  SaveRequest request{&device, content.range().start, {}, nullptr};
  for (const auto& [offset, size] : parts) request.content.push_back({content.range().start + Bytes{offset}, {size}});
  return request;
}

/// Fails call `skipped` of those of this name, counted from 0.
inline FaultyDisk::Plan fail_call(std::string_view wanted, int error, std::size_t skipped = 0) {
  return [=, left = skipped](std::size_t, std::string_view name) mutable {
    if (name != wanted) return 0;
    return left-- == 0 ? error : 0;
  };
}

/// Changes a byte of a file behind the store's back.
inline void flip_byte(int fd, off_t at) {
  alignas(4096) static unsigned char block[4096];
  const off_t start = at / 4096 * 4096;
  REQUIRE(::pread(fd, block, sizeof block, start) == sizeof block);
  block[at - start] ^= 0x10;
  REQUIRE(::pwrite(fd, block, sizeof block, start) == sizeof block);
}

}  // namespace lowtide::test

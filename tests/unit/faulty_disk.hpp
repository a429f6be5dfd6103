// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>

#include <cerrno>
#include <functional>
#include <string_view>
#include <utility>

#include "allocator/backup/disk_calls.hpp"

namespace lowtide::test {

/// The disk, whose calls are counted and fail as a plan says. Its calls come from one thread.
class FaultyDisk final : public DiskCalls {
 public:
  /// The errno with which call `index` since `start`, one of `name`, fails; 0: it does not.
  using Plan = std::function<int(std::size_t index, std::string_view name)>;

  void start(Plan plan) {
    plan_ = std::move(plan);
    calls_ = 0;
    failed_ = false;
  }
  /// How many calls there were.
  std::size_t stop() {
    plan_ = {};
    return calls_;
  }
  bool failed() const { return failed_; }

  int open_unnamed(const std::string& folder) override {
    if (fails("open")) return -1;
    fd = DiskCalls::open_unnamed(folder);
    if (!direct && fd >= 0) ::fcntl(fd, F_SETFL, O_RDWR);
    return fd;
  }
  std::optional<Bytes> free_space(int file) noexcept override { return free ? free : DiskCalls::free_space(file); }
  int reserve(int file, Bytes size) noexcept override {
    return fails("fallocate") ? -1 : DiskCalls::reserve(file, size);
  }
  ssize_t write(int file, const void* memory, Bytes size, Bytes at) noexcept override {
    return fails("pwrite") ? -1 : DiskCalls::write(file, memory, shortened(size), at);
  }
  ssize_t read(int file, void* memory, Bytes size, Bytes at) noexcept override {
    if (ends) return 0;
    return fails("pread") ? -1 : DiskCalls::read(file, memory, shortened(size), at);
  }
  int finish_flush(int file, Bytes at, Bytes size) noexcept override {
    return fails("sync_file_range") ? -1 : DiskCalls::finish_flush(file, at, size);
  }

  int fd = -1;                ///< of the last file
  bool direct = true;         ///< whether files go past the page cache
  bool ends = false;          ///< files are empty to who reads them
  std::optional<Bytes> free;  ///< what the disk says it has
  Bytes most;                 ///< that one call reads or writes; 0: no bound

 private:
  bool fails(std::string_view name) {
    const int error = plan_ ? plan_(calls_, name) : 0;
    ++calls_;
    failed_ |= error != 0;
    if (error != 0) errno = error;
    return error != 0;
  }
  Bytes shortened(Bytes size) const { return most.value > 0 && most < size ? most : size; }

  Plan plan_;
  std::size_t calls_ = 0;
  bool failed_ = false;
};

}  // namespace lowtide::test

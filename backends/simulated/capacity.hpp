// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <mutex>
#include <string>

#include "allocator/base/result.hpp"
#include "allocator/base/unique_fd.hpp"
#include "backends/simulated/cuda_abi.hpp"

namespace lowtide::sim {

/// How full the devices are, over all processes that share a folder.
///
/// Each process has a file `share-...` there with what it uses of each device, and holds a lock on it that the kernel
/// takes away when the process dies, however it dies; others then no longer count it, and unlink the file. The file
/// `lock` makes looking at all shares and changing one's own a single step. The locks are fcntl's process locks: unlike
/// flock's, a forked child does not keep them alive. Thread-safe.
class Capacity {
 public:
  /// Joins the others in `directory`; an empty one means nobody else. Code::config if the folder cannot be used.
  Status open(std::uint64_t bytes_per_device, const std::string& directory);

  /// Charges this process; false and no change if the device has not that much left.
  bool take(int device, std::uint64_t bytes);
  void give_back(int device, std::uint64_t bytes);

  std::uint64_t total() const { return total_; }
  std::uint64_t free(int device);
  /// Of this process.
  std::uint64_t used(int device);

  /// At exit. Takes no lock: another thread may have stopped while it held it.
  void unlink_share() noexcept;

 private:
  class FileLock;
  using Shares = std::array<std::uint64_t, most_devices>;

  Shares shares_of_others();
  void add_share_of(const char* name, Shares& sum);
  void publish();

  std::mutex mutex_;
  std::uint64_t total_ = 0;
  Shares mine_{};
  UniqueFd directory_;
  UniqueFd lock_;
  UniqueFd share_;
  std::string share_name_;
};

}  // namespace lowtide::sim

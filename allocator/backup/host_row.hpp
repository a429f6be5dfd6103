// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>

#include "allocator/base/bytes.hpp"
#include "allocator/base/file_identity.hpp"

namespace lowtide {

/// What this process and the others that share a place hold and await of host memory, with nothing behind it that could
/// be left over: each process says its numbers by the lengths of two read locks (open file description locks) on one
/// directory, which exists anyway. They end with the process, however it ends. The bytes that are locked mean nothing
/// but their number, and a directory cannot be opened for writing, so that no lock of anybody stands in the way.
///
/// Each process has a slot of the offsets: in the first half of them for what it holds, in the second for what is still
/// to come. Slots do not overlap, so that asking the kernel for conflicts finds every lock with its exact length.
///
/// Opening and closing exclude all else but abandon_in_child; a thread may lock while another one publishes or looks.
/// Nothing throws.
class HostRow {
 public:
  struct Share {
    Bytes held;    ///< all host memory for backups, what is to come included
    Bytes coming;  ///< of it, what is reserved and not touched yet
  };
  struct Others {
    Bytes held;
    Bytes coming;
    unsigned holders = 0;   ///< processes that hold anything
    unsigned awaiting = 0;  ///< processes to which something is still to come
  };

  HostRow() = default;
  HostRow(const HostRow&) = delete;
  HostRow& operator=(const HostRow&) = delete;
  ~HostRow() { close(); }

  /// False, with errno, if the file system does not lock or the directory cannot be opened. An open row of the same
  /// directory stays as it is.
  bool open(const std::string& directory) noexcept;
  /// What it published is gone.
  void close() noexcept;
  /// False too once the host has closed or replaced the descriptor, as a daemon does that closes all it knows not.
  bool is_open() const noexcept;
  /// The last one that was to be opened.
  const std::string& directory() const noexcept { return directory_; }

  /// Keeps others from deciding meanwhile. False if they, or one that is stopped, did not let it until `deadline`; a
  /// row that is not open is always locked.
  bool lock(std::chrono::steady_clock::time_point deadline) noexcept;
  void unlock() noexcept;

  /// Replaces this process's share. False if the kernel has no memory for it or the row is not open.
  bool publish(Share share) noexcept;
  /// All zero if the row is not open.
  Others others() const noexcept;

  /// For a fork child: its copy of the descriptor would keep the parent's share alive after the parent's end. At
  /// whatever moment of another thread the fork came.
  void abandon_in_child() noexcept;

 private:
  bool take_slot() noexcept;

  std::atomic<int> fd_{-1};
  FileIdentity identity_;
  std::string directory_;
  std::int64_t slot_ = 0;
  Share published_;
};

}  // namespace lowtide

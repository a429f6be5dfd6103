// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstddef>

namespace lowtide {

/// The descriptors of a server, so that a fork child can close its copies at whatever moment the fork came: no lock,
/// and never a number that may by now be the host's.
class OpenFds {
 public:
  static constexpr std::size_t most = 40;

  OpenFds() {
    for (auto& slot : slots_) slot.store(-1, std::memory_order_relaxed);
  }

  /// False if the table is full.
  bool add(int fd) noexcept {
    for (auto& slot : slots_) {
      int empty = -1;
      if (slot.compare_exchange_strong(empty, fd)) return true;
    }
    return false;
  }

  /// Ends the connection, also for a child that still has a copy, and closes `fd`.
  void close(int fd) noexcept {
    for (auto& slot : slots_) {
      int expected = fd;
      if (slot.compare_exchange_strong(expected, -1)) break;
    }
    ::shutdown(fd, SHUT_RDWR);
    ::close(fd);
  }

  void close_copies_in_child() noexcept {
    for (auto& slot : slots_) {
      if (const int fd = slot.exchange(-1); fd >= 0) ::close(fd);
    }
  }

 private:
  std::array<std::atomic<int>, most> slots_;
};

}  // namespace lowtide

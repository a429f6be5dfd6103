// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <csignal>

#include <array>

#include "allocator/base/unique_fd.hpp"

namespace lowtide::tools {

/// While it lives, the first SIGINT, SIGTERM or SIGHUP does not end this command but makes a descriptor readable, so
/// that what was begun can be undone; the same signal once more ends it. A signal that was ignored stays so. One at a
/// time.
class Interruption {
 public:
  /// Throws CommandError if there are no descriptors left.
  Interruption();
  Interruption(const Interruption&) = delete;
  Interruption& operator=(const Interruption&) = delete;
  ~Interruption();

  int fd() const noexcept { return read_end_.get(); }
  /// Ends this command by the signal that came, as its caller expects. Returns if there was none.
  static void end_by_signal() noexcept;

 private:
  static constexpr std::array<int, 3> signals{SIGINT, SIGTERM, SIGHUP};

  UniqueFd read_end_;
  UniqueFd write_end_;
  std::array<struct sigaction, signals.size()> before_{};
};

}  // namespace lowtide::tools

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <csignal>

#include <array>
#include <string>

#include "allocator/base/unique_fd.hpp"

namespace lowtide::tools {

/// While it lives, the first SIGINT, SIGTERM or SIGHUP does not end this command but makes a descriptor readable, so
/// that what was begun can be undone; the same signal once more ends it. Each is answered at once by words on stderr. A
/// signal that was ignored stays so. One at a time, and it dies on the thread that outlives all others.
class Interruption {
 public:
  struct Words {
    std::string first;  ///< lines, for the first signal
    std::string again;  ///< for the one that ends the command
  };
  /// Throws CommandError if there are no descriptors left.
  explicit Interruption(Words words);
  Interruption(const Interruption&) = delete;
  Interruption& operator=(const Interruption&) = delete;
  ~Interruption();

  int fd() const noexcept { return read_end_.get(); }
  /// Whether a signal came.
  static bool came() noexcept;
  /// Ends this command by the signal that came, as its caller expects. Returns if there was none.
  static void end_by_signal() noexcept;

 private:
  static void handle(int signal);

  static constexpr std::array<int, 3> signals{SIGINT, SIGTERM, SIGHUP};

  Words words_;
  UniqueFd read_end_;
  UniqueFd write_end_;
  std::array<struct sigaction, signals.size()> before_{};
};

}  // namespace lowtide::tools

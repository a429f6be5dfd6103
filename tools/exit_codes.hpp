// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdexcept>
#include <string>

#include "allocator/base/result.hpp"

namespace lowtide::tools {

/// What the command exits with; docs/cli.md has the same table, a test compares them. `run` gives the program's own
/// code, and 126 or 127 as env(1) does.
enum class ExitCode : int {
  ok = 0,
  failed = 1,
  usage = 2,
  not_found = 3,
  permission = 4,
  device_memory = 5,
  refused = 6,
};

/// The table for people, one line per code.
std::string exit_code_help();

/// The exit code for what a process answered.
ExitCode exit_code_of(Code code) noexcept;

/// Ends a command: one line for stderr, and the exit code. Caught once, in main.
class CommandError : public std::runtime_error {
 public:
  CommandError(ExitCode exit_code, const std::string& message) : std::runtime_error(message), exit_code_(exit_code) {}
  ExitCode exit_code() const noexcept { return exit_code_; }

 private:
  ExitCode exit_code_;
};

}  // namespace lowtide::tools

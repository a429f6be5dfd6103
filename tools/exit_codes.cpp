// SPDX-License-Identifier: Apache-2.0
#include "tools/exit_codes.hpp"

#include <fmt/format.h>

namespace lowtide::tools {
namespace {

struct Row {
  ExitCode code;
  const char* meaning;
};

constexpr Row table[] = {
    {ExitCode::ok, "done"},
    {ExitCode::failed, "the operation failed (HOST_BUDGET, MOVED, DRIVER, UNSUPPORTED, CORRUPT), or no answer"},
    {ExitCode::usage, "wrong usage or configuration (INVALID, CONFIG)"},
    {ExitCode::not_found, "no such process, or it is not under Lowtide"},
    {ExitCode::permission, "another user's process, or a runtime folder that cannot be used"},
    {ExitCode::device_memory, "not enough free device memory (DEVICE_MEMORY)"},
    {ExitCode::refused, "something stands in the way, try again later (REFUSED, BUSY)"},
};

}  // namespace

std::string exit_code_help() {
  std::string text = "Exit codes:\n";
  for (const auto& row : table) text += fmt::format("  {}  {}\n", static_cast<int>(row.code), row.meaning);
  return text;
}

ExitCode exit_code_of(Code code) noexcept {
  switch (code) {
    case Code::invalid:
    case Code::config: return ExitCode::usage;
    case Code::device_memory: return ExitCode::device_memory;
    case Code::refused:
    case Code::busy: return ExitCode::refused;
    case Code::host_budget:
    case Code::moved:
    case Code::driver:
    case Code::unsupported:
    case Code::corrupt: return ExitCode::failed;
  }
  return ExitCode::failed;
}

}  // namespace lowtide::tools

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace lowtide::tools {

/// What lowtide-probe --selftest printed.
struct Selftest {
  nlohmann::json report;
  bool ok;           ///< every device has a backend, and what its trial calls good keeps the contract
  std::string text;  ///< the report for people
};

/// Has every device tried with every backend, in a process of its own. Throws CommandError with what stood in the way.
Selftest run_selftest();

/// What the line means. Throws CommandError if it is none.
Selftest interpret_selftest(const std::string& line);

}  // namespace lowtide::tools

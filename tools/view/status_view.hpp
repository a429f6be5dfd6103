// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "tools/processes/ask.hpp"

namespace lowtide::tools {

/// Everything about one process, several lines.
std::string status_text(const ProcessStatus& status);

/// A report object of docs/control-protocol.md, several lines; `verb` is "parked" or "brought back".
std::string report_text(pid_t pid, const char* verb, const nlohmann::json& report);

}  // namespace lowtide::tools

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "tools/processes/ask.hpp"

namespace lowtide::tools {

/// Everything about one process, several lines.
std::string status_text(const ProcessStatus& status);

inline constexpr std::string_view parked_verb = "parked";
inline constexpr std::string_view brought_back_verb = "brought back";

/// A report object of docs/control-protocol.md, several lines; `verb` is one of these.
std::string report_text(pid_t pid, std::string_view verb, const nlohmann::json& report);

}  // namespace lowtide::tools

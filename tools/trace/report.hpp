// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "tools/trace/phase_table.hpp"

namespace lowtide::tools {

/// The tables, the sites and what happened, for people.
std::string report_text(const Profile& profile, const Selection& selection);

/// The same with all columns; docs/tracing.md says its keys.
nlohmann::json report_json(const Profile& profile, const Selection& selection);

}  // namespace lowtide::tools

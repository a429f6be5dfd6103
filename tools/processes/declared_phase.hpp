// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "tools/processes/asked.hpp"

namespace lowtide::tools {

/// Whether a process declares `name`, or may: one of a version that does not say is believed to.
bool declares(const ProcessStatus& status, std::string_view name);

/// Throws CommandError (usage) if processes declare phases and `name` is none of them, with the nearest first. Where
/// nobody declares any, a name is a mark of its user's own.
void check_phase(const std::vector<Asked>& asked, const std::string& name);

}  // namespace lowtide::tools

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "tools/trace/phase_table.hpp"

namespace lowtide::tools {

/// verl's line before and after each phase that counts, in the order of time. Where there are several processes or
/// devices, whose line it is stands before it, as Ray says it.
std::string log_lines(const Profile& profile, const Selection& selection);

}  // namespace lowtide::tools

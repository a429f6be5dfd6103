// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "tools/trace/profile.hpp"

namespace lowtide::tools {

/// One HTML page that needs nothing else: a stacked chart for each device of each process, zoomable, with its phases.
std::string plot_page(const Profile& profile);

/// The same charts as one picture, for a report.
std::string plot_svg(const Profile& profile);

}  // namespace lowtide::tools

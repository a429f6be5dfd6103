// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>

#include "tools/top/machine.hpp"
#include "tools/top/picture.hpp"

namespace lowtide::tools {

/// A bar for each device, and a line for each process; at most `width` characters wide.
Picture draw_machine(const MachineStatus& machine, const std::map<pid_t, Rates>& rates, std::size_t width);

}  // namespace lowtide::tools

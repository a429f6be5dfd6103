// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "allocator/control/control_client.hpp"

namespace lowtide::tools {

/// Throws CommandError (usage) if `text` is not a process id.
pid_t parse_pid_argument(const std::string& text);

/// The sockets of `pid` and of everything below it, at least one. Throws CommandError: no such process, not under
/// Lowtide, another user's, or the folder where its socket would lie cannot be trusted.
std::vector<ControlSocket> find_targets(pid_t pid);

}  // namespace lowtide::tools

// SPDX-License-Identifier: Apache-2.0
// The roles of hazards_victim: small programs, each of which exits 0 if it saw what it should. A role throws what went
// wrong; main prints that and exits 1.
#pragma once

#include <string>
#include <vector>

namespace hazards {

using Arguments = std::vector<std::string>;  ///< what comes after the role's name
struct Role {
  const char* name;
  int (*play)(const Arguments& arguments);
};

std::vector<Role> exit_roles();
std::vector<Role> fork_roles();
std::vector<Role> loading_roles();
std::vector<Role> api_roles();
std::vector<Role> trace_roles();

/// Prints a line and flushes.
void say(const std::string& line);
/// Waits for a line on stdin, or its end.
void hear();

}  // namespace hazards

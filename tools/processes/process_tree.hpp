// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <optional>
#include <set>
#include <string>

namespace lowtide::tools {

/// `root` and everything below it, as /proc shows it now. A child whose parent ended is not below it any more.
std::set<pid_t> with_descendants(pid_t root);

/// The user a process runs as; nothing if there is no such process.
std::optional<uid_t> owner_of(pid_t pid);

/// "alice (1000)", or the number alone.
std::string user_text(uid_t user);

}  // namespace lowtide::tools

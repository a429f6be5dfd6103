// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "tools/processes/ask.hpp"

namespace lowtide::tools {

/// A process, and what it says of itself.
struct Asked {
  ControlSocket socket;
  ProcessStatus status;
};

/// The status of each. Throws CommandError for the first that does not answer.
std::vector<Asked> ask_each(const std::vector<ControlSocket>& targets);

/// Those that have memory under `tag`, at least one. Throws CommandError (usage), with the tags that there are.
std::vector<Asked> those_with(const TagName& tag, std::vector<Asked> asked);

}  // namespace lowtide::tools

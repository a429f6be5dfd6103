// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "tools/processes/transition.hpp"

namespace lowtide::tools {

/// Why a pause or a resume that succeeded moved nothing.
struct NothingMoved {
  std::string reason;     ///< a clause without a full stop
  bool not_held = false;  ///< a hold was wished, and the process goes on
};

/// Whether a report object of docs/control-protocol.md is of a transition that moved nothing.
bool moved_nothing(const nlohmann::json& report);

/// Tells it from the status before the transition.
NothingMoved explain_nothing_moved(const ProcessStatus& before, const TransitionWish& wish);

}  // namespace lowtide::tools

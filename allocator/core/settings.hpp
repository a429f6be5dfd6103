// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <map>

#include "allocator/core/types.hpp"

namespace lowtide {

/// What is done with the blocks of a tag. A block keeps the settings that its tag had when it was allocated.
struct TagSettings {
  Action pause = Action::offload;
  Fill fill = Fill::none;
  Place store = Place::host;
  PausedAccess paused_access = PausedAccess::fault;
};

/// The settings of the core. Parsed by policy/; the defaults are those of a process without any configuration.
struct CoreSettings {
  std::map<TagName, TagSettings, std::less<>> tags;  ///< tags not named here: TagSettings{}
  std::chrono::milliseconds device_wait{0};          ///< how long a resume waits for free device memory
  /// Joined extents may hold this much of a region for no block before no more are joined.
  Bytes device_slack = 256_MiB;
  std::chrono::milliseconds gate_drain{10'000};  ///< how long a hold waits for the process to come to rest
};

}  // namespace lowtide

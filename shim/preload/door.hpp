// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>

#include "shim/door_table.h"

namespace lowtide::preload {

/// The table once it is known, else null.
extern std::atomic<const lowtide_door_table_v1*> known_door;

/// Loads liblowtide.so, which lies beside this library, and asks it for the table; the answer is kept for ever. Without
/// it, or if it refuses, and for calls it makes itself while it starts, the table of a door that lets everything pass.
const lowtide_door_table_v1& open_door() noexcept;

/// The state behind the doors. One load, after the first call.
inline const lowtide_door_table_v1& door() noexcept {
  const auto* known = known_door.load(std::memory_order_acquire);
  return known != nullptr ? *known : open_door();
}

}  // namespace lowtide::preload

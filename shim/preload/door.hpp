// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>

#include "shim/door_table.h"

namespace lowtide::preload {

/// Each vendor's table once it is known, else null.
extern std::atomic<const lowtide_door_table_v1*> known_doors[LOWTIDE_VENDORS];

/// Loads liblowtide.so, which lies beside this library, and asks it for the table; the answer is kept for ever. Without
/// it, or if it refuses, and for calls it makes itself while it starts, the table of a door that lets everything pass.
const lowtide_door_table_v1& open_door(lowtide_vendor vendor) noexcept;

/// The state behind a vendor's doors. One load, after the first call.
inline const lowtide_door_table_v1& door(lowtide_vendor vendor) noexcept {
  const auto* known = known_doors[vendor].load(std::memory_order_acquire);
  return known != nullptr ? *known : open_door(vendor);
}

}  // namespace lowtide::preload

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/result.hpp"
#include "allocator/core/types.hpp"

namespace lowtide {

/// Code::host_budget if a backup of `needed` bytes, `retained` of which are already there, is more than the kernel says
/// is available (MemAvailable): pinned memory cannot be swapped, and a host without memory kills processes.
Status host_has_room(Bytes needed, Bytes retained) noexcept;

}  // namespace lowtide

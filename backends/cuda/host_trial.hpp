// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/core/backend.hpp"

namespace lowtide::cuda {

/// Tries whether host memory can lie behind an address of the device, where the device and the host read it: creates
/// a granule of it, maps it twice as a pause does, and reads it back. What it got it gives back.
bool holds_host_memory(Backend& backend);

}  // namespace lowtide::cuda

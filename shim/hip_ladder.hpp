// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backends/hip/runtime.hpp"
#include "backends/portable/recreated_memory.hpp"
#include "shim/backend_choice.hpp"

namespace lowtide {

/// What can serve a HIP device. `runtime` and `memory`, that of all devices, outlive all that is made of it.
Ladder hip_ladder(const hip::Runtime& runtime, DeviceId device, portable::RecreatedMemory& memory);

}  // namespace lowtide

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backends/hip/vmm_backend.hpp"
#include "backends/portable/recreated_memory.hpp"
#include "shim/backend_choice.hpp"

namespace lowtide {

/// What can serve a HIP device. `runtime`, and `reservations` and `memory` of all devices, outlive all that is made of
/// it.
Ladder hip_ladder(const hip::Runtime& runtime, DeviceId device, hip::Reservations& reservations,
                  portable::RecreatedMemory& memory);

}  // namespace lowtide

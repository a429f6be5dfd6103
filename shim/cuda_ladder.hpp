// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backends/cuda/driver.hpp"
#include "backends/portable/recreated_memory.hpp"
#include "shim/backend_choice.hpp"

namespace lowtide {

/// What can serve a CUDA device. `driver` and `memory`, that of all devices, outlive all that is made of it.
Ladder cuda_ladder(const cuda::Driver& driver, DeviceId device, portable::RecreatedMemory& memory);

}  // namespace lowtide

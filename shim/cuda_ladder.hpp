// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backends/cuda/driver.hpp"
#include "shim/backend_choice.hpp"

namespace lowtide {

/// What can serve a CUDA device. `driver` outlives all that is made of it.
Ladder cuda_ladder(const cuda::Driver& driver, DeviceId device);

}  // namespace lowtide

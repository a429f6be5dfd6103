// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "allocator/core/backend.hpp"
#include "backends/cuda/driver.hpp"

namespace lowtide::cuda {

/// What the driver says of a device, and what needs no trial.
struct DeviceFacts {
  std::string name;             ///< "NVIDIA H200"
  int host_node = -1;           ///< the host's node nearest to it; -1: one only, or the driver does not say
  Result<Bytes> granularity{};  ///< of virtual memory management, which may not be there
};

DeviceFacts facts_of(const Driver& driver, DeviceId device);

}  // namespace lowtide::cuda

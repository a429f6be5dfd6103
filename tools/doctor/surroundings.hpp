// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "allocator/base/bytes.hpp"
#include "allocator/base/host_limits.hpp"
#include "tools/doctor/finding.hpp"

namespace lowtide::tools {

/// Host memory, its limits, and RLIMIT_MEMLOCK, against what all devices together may have to back up.
Findings examine_host_memory(const HostLimits& limits, std::optional<Bytes> device_memory);

/// LD_PRELOAD, PyTorch's and NCCL's variables, LOWTIDE_* and whether they parse.
Findings examine_environment();

/// The libraries and the folder of the control sockets. Makes nothing.
Findings examine_installation();

}  // namespace lowtide::tools

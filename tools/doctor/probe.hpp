// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "allocator/base/bytes.hpp"
#include "tools/doctor/finding.hpp"

namespace lowtide::tools {

struct ProbeOutcome {
  Findings findings;
  std::optional<Bytes> device_memory;  ///< of all devices together
};

/// Starts lowtide-probe, which asks the driver, in a process of its own: a driver that hangs or crashes is a finding.
ProbeOutcome probe_devices();

/// What the line that lowtide-probe printed means.
ProbeOutcome interpret_probe(const std::string& line);

}  // namespace lowtide::tools

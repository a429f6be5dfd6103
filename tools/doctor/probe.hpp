// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <tl/expected.hpp>

#include "allocator/base/bytes.hpp"
#include "tools/doctor/finding.hpp"

namespace lowtide::tools {

struct ProbeOutcome {
  Findings findings;
  std::optional<Bytes> device_memory;  ///< of all devices together; nothing if none can be used
};

/// Starts lowtide-probe, which asks the driver, in a process of its own: a driver that hangs or crashes is a finding.
ProbeOutcome probe_devices();

/// The line that lowtide-probe prints with `argument` ("": none) within `longest`; else what stood in the way.
tl::expected<std::string, Finding> ask_probe(const std::string& argument, std::chrono::seconds longest);

/// What the line that lowtide-probe printed means.
ProbeOutcome interpret_probe(const std::string& line);

}  // namespace lowtide::tools

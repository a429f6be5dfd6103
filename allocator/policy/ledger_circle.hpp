// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "allocator/policy/ledger_layout.hpp"

namespace lowtide {

/// Whether `self` waits for one that waits for `self`, directly or through others, and was the last of them to begin
/// to wait; then the text names each of them: "process 12 waits to resume weights until process 34 pauses optim, which
/// waits ...". `all` may name a process once for each device.
std::optional<std::string> circle_closed_by(std::uint64_t self, std::span<const ledger::Said> all);

}  // namespace lowtide

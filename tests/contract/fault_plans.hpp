// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>

#include "tests/contract/faulty_driver.hpp"

namespace lowtide::test {

/// Runs an operation once under a plan, checks what is left of it, and returns its driver calls. `label` says which
/// calls fail, for the message of a failed check.
using FaultRun = std::function<std::vector<DriverCall>(const FaultyDriver::Plan& plan, const std::string& label)>;

/// Runs an operation under every plan of failing calls: each single call once, it and everything after it, it and all
/// later calls of its function; and each call together with the next call of every function that then follows, which
/// covers the first call of the undo. LOWTIDE_TEST_LONG=1: each call together with every later one.
/// Returns how many plans there were.
std::size_t for_each_fault(const FaultRun& run);

/// Whether the calls contain a successful one of `name`.
bool succeeded(const std::vector<DriverCall>& calls, std::string_view name);

}  // namespace lowtide::test

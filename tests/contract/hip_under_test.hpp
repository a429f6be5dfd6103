// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "backends/hip/vmm_backend.hpp"
#include "tests/contract/backend_under_test.hpp"

namespace lowtide::test {

/// The VMM backend over the simulated libamdhip64, and plain memory that is freed and allocated again.
std::unique_ptr<BackendUnderTest> make_simulated_hip(const hip::VmmHabits& habits);
std::unique_ptr<BackendUnderTest> make_simulated_hip_recreate();
/// The same over the libamdhip64 that LOWTIDE_TEST_HIP names; null if it names none. The forwarding one serves it from
/// the driver that the loader finds, unless a case before has loaded the simulated one.
std::unique_ptr<BackendUnderTest> make_real_hip(const hip::VmmHabits& habits);
std::unique_ptr<BackendUnderTest> make_real_hip_recreate();

}  // namespace lowtide::test

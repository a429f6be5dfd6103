// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "tests/contract/backend_under_test.hpp"

namespace lowtide::test {

/// The VMM backend over the simulated libcuda.so.1.
std::unique_ptr<BackendUnderTest> make_simulated_vmm();
/// The VMM backend over the libcuda.so.1 that LOWTIDE_TEST_DRIVER names; null if it names none.
std::unique_ptr<BackendUnderTest> make_real_vmm();
/// The same over plain allocations.
std::unique_ptr<BackendUnderTest> make_simulated_recreate();
std::unique_ptr<BackendUnderTest> make_real_recreate();

}  // namespace lowtide::test

// SPDX-License-Identifier: Apache-2.0
#include "tests/contract/backend_under_test.hpp"
#include "tests/contract/cuda_under_test.hpp"

namespace lowtide::test {

const std::vector<BackendCase>& backend_cases() {
  static const std::vector<BackendCase> cases{
      {"vmm on the simulated driver", make_simulated_vmm},
      {"recreate on the simulated driver", make_simulated_recreate},
      {"vmm on the driver that LOWTIDE_TEST_DRIVER names", make_real_vmm},
      {"recreate on that driver", make_real_recreate},
  };
  return cases;
}

}  // namespace lowtide::test

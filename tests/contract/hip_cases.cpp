// SPDX-License-Identifier: Apache-2.0
#include "tests/contract/hip_under_test.hpp"

namespace lowtide::test {
namespace {

constexpr hip::VmmHabits any_size{};
constexpr hip::VmmHabits in_chunks{.chunk = 2_MiB};
constexpr hip::VmmHabits cycling{.chunk = 4_MiB, .cycles = true};

}  // namespace

const std::vector<BackendCase>& backend_cases() {
  static const std::vector<BackendCase> cases{
      {"HIP vmm", [] { return make_simulated_hip(any_size); }},
      {"HIP vmm in chunks", [] { return make_simulated_hip(in_chunks); }},
      {"HIP vmm+cycle", [] { return make_simulated_hip(cycling); }},
      {"HIP recreate", make_simulated_hip_recreate},
      {"vmm on the runtime that LOWTIDE_TEST_HIP names", [] { return make_real_hip(any_size); }},
      {"vmm in chunks on the runtime that LOWTIDE_TEST_HIP names", [] { return make_real_hip(in_chunks); }},
      {"vmm+cycle on the runtime that LOWTIDE_TEST_HIP names", [] { return make_real_hip(cycling); }},
      {"recreate on the runtime that LOWTIDE_TEST_HIP names", make_real_hip_recreate},
  };
  return cases;
}

}  // namespace lowtide::test

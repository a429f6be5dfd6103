// SPDX-License-Identifier: Apache-2.0
#include "backends/hip/vmm_backend.hpp"
#include "backends/portable/recreate_backend.hpp"
#include "tests/contract/faulty_driver.hpp"
#include "tests/contract/hip_under_test.hpp"
#include "tests/contract/world.hpp"

namespace lowtide::test {
namespace {

const hip::Runtime& runtime() {
  static const hip::Runtime faulty = faulty_runtime(simulated_hip_runtime());
  return faulty;
}

template <bool cycles>
std::unique_ptr<Backend> make_vmm(const cuda::Driver&, DeviceId device, portable::RecreatedMemory&) {
  constexpr hip::VmmHabits habits{.chunk = 2_MiB, .cycles = cycles};
  const auto capabilities = hip::vmm_capabilities(runtime(), device, habits, true).value();
  static hip::Reservations reservations;
  return std::make_unique<hip::VmmBackend>(reservations, runtime(), device, "simulated", capabilities, "test", habits);
}

std::unique_ptr<Backend> make_recreate(const cuda::Driver&, DeviceId device, portable::RecreatedMemory& memory) {
  return std::make_unique<portable::RecreateBackend<hip::Device>>(memory, runtime(), device, "simulated",
                                                                  portable::plain_capabilities(true, -1), "test");
}

const BackendKind in_chunks{"HIP vmm in chunks", &make_vmm<false>, "hipMemUnmap", true, &hip::context_of};
const BackendKind cycling{"HIP vmm+cycle", &make_vmm<true>, "hipMemUnmap", false, &hip::context_of};
const BackendKind recreating{"HIP recreate", &make_recreate, "hipFree", false, &hip::context_of};

}  // namespace

const std::vector<const BackendKind*> backend_kinds{&in_chunks, &cycling, &recreating};

}  // namespace lowtide::test

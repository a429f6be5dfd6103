// SPDX-License-Identifier: Apache-2.0
// Each call of the driver that the choice of a backend makes, made to fail.
#include "tests/contract/choice_support.hpp"
#include "tests/contract/fault_plans.hpp"

using namespace lowtide;
using namespace lowtide::test;

TEST_CASE("a trial whose driver calls fail once leaves nothing behind, and costs no rung") {
  Primary primary;
  FaultyDriver driver(simulated());
  for (const char* forced : {"", "recreate"}) {
    driver.start({});
    REQUIRE(primary.choose(driver.table(), forced));
    const auto usual = driver.stop().size();
    for (std::size_t k = 0; k < usual; ++k) {
      const Held before = held_now();
      driver.start(once(k));
      const std::string chosen = [&] {
        const auto backend = primary.choose(driver.table(), forced);
        return std::string(backend ? (*backend)->name() : "none");
      }();
      const auto calls = driver.stop();
      if (k >= calls.size()) break;  // a neighbour on the device makes a trial look once more, or no more
      INFO("forced \"" << forced << "\", failing: call " << k << ", " << calls[k].name);
      Held after = held_now();
      // No device memory: what the driver would not take back goes with its context, and addresses are plenty. So does
      // what work may still touch.
      const std::string_view failed = calls[k].name;
      const bool all = failed == "cuCtxPushCurrent_v2" || failed == "cuStreamSynchronize";
      if (failed == "cuStreamDestroy_v2" || all) after.streams = before.streams;
      if (failed == "cuModuleUnload" || all) after.modules = before.modules;
      if (failed == "cuMemFreeHost" || all) after.host_allocations = before.host_allocations;
      if (failed == "cuMemAddressFree") after.reservations = before.reservations;
      REQUIRE(after == before);
      // Without its granularity there is no such memory; without a stream there is no backend.
      if (failed != "cuMemGetAllocationGranularity" && chosen != "none") {
        REQUIRE(chosen == (*forced == '\0' ? "vmm" : forced));
      }
      REQUIRE(primary.choose(simulated()));  // the context is sound
    }
  }
}

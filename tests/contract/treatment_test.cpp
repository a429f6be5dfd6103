// SPDX-License-Identifier: Apache-2.0
// Blocks of one tag for which their scopes said what a pause does with them, in place of the tag's settings.
#include "tests/catch.hpp"
#include "tests/contract/world.hpp"

using namespace lowtide;
using namespace lowtide::test;

namespace {

const cuda::Driver& simulated() { return SimulatedDriver::instance().driver(); }

}  // namespace

TEST_CASE("blocks of one tag are copied, written to disk, dropped and kept, as their scopes said") {
  World world(simulated(), 1);
  world.set_action("weights", Action::keep);
  world.blocks.reserve(5);
  const auto add = [&](std::optional<Treatment> treatment, Bytes size) {
    const auto address = world.table.allocate(world.backend(), {tag_name("weights"), treatment}, world.context(), size);
    REQUIRE(address);
    return &world.adopt(*address, "weights", size);
  };
  auto* const copied = add(Treatment{Action::offload, Place::host}, 3_MiB);
  auto* const small = add(Treatment{Action::offload, Place::host}, Bytes{5000});
  auto* const on_disk = add(Treatment{Action::offload, Place::disk}, 4_MiB);
  auto* const dropped = add(Treatment{Action::discard, Place::host}, Bytes{6000});
  auto* const kept = add(std::nullopt, Bytes{7000});
  const auto report = world.pause(tag_name("weights"));
  REQUIRE(report);
  CHECK(report->parked == 7_MiB + Bytes{5000});
  CHECK(report->discarded == Bytes{6000});
  CHECK(report->kept == Bytes{7000});
  CHECK(world.is_resident(*kept));
  CHECK(world.store.backup_bytes() >= 3_MiB);
  CHECK(world.store.backup_bytes() < 4_MiB);
  CHECK(world.disk.backup_bytes() >= 4_MiB);
  for (const auto* parked : {copied, small, on_disk, dropped}) CHECK_FALSE(world.is_resident(*parked));
  dropped->known = false;
  CHECK(world.complaint() == "");
  REQUIRE(world.resume(tag_name("weights")));
  CHECK(world.complaint() == "");
  CHECK(world.parked_blocks() == 0);
}

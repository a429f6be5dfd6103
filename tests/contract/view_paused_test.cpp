// SPDX-License-Identifier: Apache-2.0
// The host's own copy of a parked block, looked at where it lies.
#include <cstring>

#include "tests/catch.hpp"
#include "tests/contract/runtime_world.hpp"
#include "tests/contract/world.hpp"

using namespace lowtide;
using namespace lowtide::test;

namespace {

const cuda::Driver& simulated() { return SimulatedDriver::instance().driver(); }

/// Whether the views of a block, one behind the other, are its bytes. Counts them.
bool views_are(World& world, const World::KnownBlock& block, std::size_t& pieces) {
  pieces = 0;
  for (std::size_t at = 0; at < block.bytes.size(); ++pieces) {
    const auto view = world.table.view_backup(block.address + Bytes{at});
    REQUIRE(view);
    REQUIRE_FALSE(view->empty());
    REQUIRE(view->size() <= block.bytes.size() - at);
    if (std::memcmp(view->data(), block.bytes.data() + at, view->size()) != 0) return false;
    at += view->size();
  }
  return true;
}

Code refusal(World& world, DeviceAddress address) {
  const auto view = world.table.view_backup(address);
  REQUIRE_FALSE(view);
  return view.error().code();
}

}  // namespace

TEST_CASE("the views of a parked block are its bytes in few pieces, and end with it") {
  World world(simulated(), 1);
  world.blocks.reserve(4);
  const auto& large = world.add("weights", 130_MiB);
  const auto& odd = world.add("weights", 3_MiB + Bytes{12345});
  // These two share a granule.
  const auto& small = world.add("weights", Bytes{5000});
  const auto& next = world.add("weights", Bytes{70'001});
  REQUIRE(world.pause());
  std::size_t pieces = 0;
  CHECK(views_are(world, large, pieces));
  CHECK(pieces <= 5);
  for (const auto* block : {&odd, &small, &next}) {
    CHECK(views_are(world, *block, pieces));
    CHECK(pieces <= 3);
  }
  const auto last = world.table.view_backup(small.address + Bytes{4999});
  REQUIRE(last);
  CHECK(last->size() == 1);
  REQUIRE(world.resume());
  CHECK(world.complaint() == "");
}

TEST_CASE("a view shows what was written to the backup, and that is what comes back") {
  World world(simulated(), 1);
  auto& block = world.add("weights", 5_MiB);
  REQUIRE(world.pause());
  std::fill(block.bytes.begin() + 2'000'000, block.bytes.begin() + 4'000'000, std::uint8_t{0x5a});
  const AddressRange range{block.address + Bytes{2'000'000}, Bytes{2'000'000}};
  REQUIRE(world.table.write_backup(range, block.bytes.data() + 2'000'000));
  std::size_t pieces = 0;
  CHECK(views_are(world, block, pieces));
  REQUIRE(world.resume());
  CHECK(world.complaint() == "");
}

TEST_CASE("of what is not parked, or not kept, or not ours, there is no view") {
  World world(simulated(), 1);
  world.set_action("kv_cache", Action::discard);
  world.blocks.reserve(2);
  const auto& weights = world.add("weights", 2_MiB);
  const auto& cache = world.add("kv_cache", 2_MiB);
  CHECK(refusal(world, weights.address) == Code::invalid);
  REQUIRE(world.pause());
  CHECK(refusal(world, cache.address) == Code::invalid);
  CHECK(refusal(world, weights.range().end()) == Code::invalid);
  CHECK(refusal(world, DeviceAddress{0x1000}) == Code::invalid);
  CHECK(world.table.view_backup(weights.address));
  REQUIRE(world.resume());
  CHECK(refusal(world, weights.address) == Code::invalid);
}

TEST_CASE("a view of one tag outlives the pause and the resume of another, and a trim") {
  RuntimeWorld world(simulated(), 1);
  const auto weights = world.add("weights", 4_MiB, 7);
  world.add("lora", 4_MiB, 8);
  REQUIRE(world.runtime.pause(tag_name("weights")));
  const auto view = world.runtime.view_backup(weights);
  REQUIRE(view);
  REQUIRE(view->size() == (4 << 20));
  REQUIRE(world.runtime.pause(tag_name("lora")));
  REQUIRE(world.runtime.resume(tag_name("lora")));
  REQUIRE(world.runtime.trim());
  CHECK(std::all_of(view->begin(), view->end(), [](std::byte byte) { return byte == std::byte{7}; }));
  CHECK(world.runtime.view_backup(weights)->data() == view->data());
  REQUIRE(world.runtime.resume(tag_name("weights")));
  CHECK(world.holds(weights, 4_MiB, 7));
}

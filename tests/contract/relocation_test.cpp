// SPDX-License-Identifier: Apache-2.0
// Memory that is freed by a pause and allocated again: what becomes of addresses that somebody else has meanwhile.
#include <algorithm>

#include "tests/catch.hpp"
#include "tests/contract/fault_plans.hpp"
#include "tests/contract/world.hpp"

using namespace lowtide;
using namespace lowtide::test;

namespace {

const cuda::Driver& simulated() { return SimulatedDriver::instance().driver(); }

/// A driver that cannot keep addresses, as where there is no virtual memory management.
bool cannot_keep(std::size_t, std::string_view name) { return name == "cuMemAddressReserve"; }

class Stage {
 public:
  Stage() : driver(simulated()), world(driver.table(), 1, {}, std::make_unique<DiskCalls>(), recreate_kind) {
    driver.start(cannot_keep);
    world.blocks.reserve(16);
  }
  ~Stage() { leave(); }

  void occupy(DeviceAddress address, Bytes size) {
    const cuda::ContextGuard guard(simulated(), reinterpret_cast<CUcontext>(world.context().value));
    // The lowest free place comes first.
    for (CUdeviceptr got = 0; got != address.value;) {
      REQUIRE(simulated().cuMemAlloc_v2(&got, size.value) == CUDA_SUCCESS);
      occupiers.push_back(got);
      REQUIRE(occupiers.size() < 100);
    }
  }
  /// Without memory, and exactly there.
  void occupy_addresses(AddressRange range) {
    CUdeviceptr got = 0;
    REQUIRE(simulated().cuMemAddressReserve(&got, range.size.value, 0, range.start.value, 0) == CUDA_SUCCESS);
    REQUIRE(got == range.start.value);
    reserved.push_back(range);
  }
  void leave() {
    for (const auto& range : reserved)
      CHECK(simulated().cuMemAddressFree(range.start.value, range.size.value) == CUDA_SUCCESS);
    reserved.clear();
    const cuda::ContextGuard guard(simulated(), reinterpret_cast<CUcontext>(world.context().value));
    for (const auto occupier : occupiers) CHECK(simulated().cuMemFree_v2(occupier) == CUDA_SUCCESS);
    occupiers.clear();
  }
  void may_move(const char* tag) { world.settings.tags[tag_name(tag)].may_move = true; }
  /// Follows the moves, as the owner of the blocks does.
  void follow(const TransitionReport& report) {
    for (const auto& move : report.moves) {
      const auto block = std::find_if(world.blocks.begin(), world.blocks.end(), [&](const auto& candidate) {
        return candidate.live && candidate.address == move.from && candidate.size == move.size;
      });
      REQUIRE(block != world.blocks.end());
      CHECK(block->tag == move.tag);
      block->address = move.to;
    }
  }

  FaultyDriver driver;
  World world;
  std::vector<CUdeviceptr> occupiers;
  std::vector<AddressRange> reserved;
};

}  // namespace

TEST_CASE("an address that others have refuses the resume, loses nothing, and is had back once they left") {
  Stage stage;
  World& world = stage.world;
  const auto taken = world.add("weights", 66_MiB);
  world.add("weights", 2_MiB);
  world.add("weights", Bytes{1000});
  REQUIRE(world.pause());
  stage.occupy(taken.address, taken.size);
  for (int attempt = 0; attempt < 2; ++attempt) {
    const auto report = world.resume();
    REQUIRE_FALSE(report);
    CHECK(report.error().code() == Code::moved);
    CHECK(std::string(report.error().message()).find("66.0 MiB") != std::string::npos);
    CHECK(world.parked_blocks() == 3);
    CHECK(world.complaint() == "");
  }
  stage.leave();
  REQUIRE(world.resume());
  CHECK(world.parked_blocks() == 0);
  CHECK(world.complaint() == "");
}

TEST_CASE("a refused resume keeps no memory of the device") {
  Stage stage;
  const auto taken = stage.world.add("weights", 4_MiB);
  stage.world.add("weights", 6_MiB);
  REQUIRE(stage.world.pause());
  stage.occupy(taken.address, taken.size);
  const auto before = held_now();
  REQUIRE_FALSE(stage.world.resume());
  CHECK(held_now() == before);
}

TEST_CASE("what is held back of blocks that come back elsewhere is put back there") {
  Stage stage;
  World& world = stage.world;
  stage.may_move("weights");
  const TagName weights = tag_name("weights");
  world.settings.tags[weights].pause = Action::discard;
  world.settings.tags[weights].coverage = Coverage::learn;
  const auto taken = world.add("weights", 64_MiB).address;
  world.add("weights", Bytes{70'000});
  REQUIRE(world.pause());
  stage.occupy(taken, 64_MiB);
  const auto report = world.resume();
  REQUIRE(report);
  REQUIRE(report->moves.size() == 1);
  stage.follow(*report);
  REQUIRE(world.transitions.begin_update(weights, 1));
  for (auto& block : world.blocks) {
    std::fill_n(block.bytes.begin(), 4096, std::uint8_t{7});
    REQUIRE(world.backend().copy_in({block.address, Bytes{4096}}, block.bytes.data()));
    REQUIRE(world.backend().finish_copies());
    block.known = true;
  }
  REQUIRE(world.transitions.commit_update(weights, 1, world.settings));
  CHECK(world.complaint() == "");
  CHECK(world.table.regions().front().residue == 64_MiB + Bytes{70'000 - 2 * 4096});
}

TEST_CASE("blocks whose owner follows come back elsewhere, with their bytes, and are told one by one") {
  Stage stage;
  World& world = stage.world;
  stage.may_move("weights");
  const auto taken = world.add("weights", 64_MiB);
  const auto small = world.add("weights", Bytes{1000});
  world.add("weights", Bytes{70'000});
  world.add("weights", 64_MiB);
  REQUIRE(world.pause());
  stage.occupy(taken.address, taken.size);
  stage.occupy(small.address, 2_MiB);
  const auto report = world.resume();
  INFO((report ? "" : report.error().message()));
  REQUIRE(report);
  CHECK(report->moves.size() == 3);  // the last has its address
  CHECK_FALSE(world.table.find(taken.address));
  stage.follow(*report);
  CHECK(world.complaint() == "");
  CHECK(world.parked_blocks() == 0);
  // They live on where they are.
  REQUIRE(world.pause());
  stage.leave();
  const auto again = world.resume();
  REQUIRE(again);
  stage.follow(*again);
  CHECK(world.complaint() == "");
}

TEST_CASE("a tag that nobody follows refuses the resume of all, and another that is followed stays where it was") {
  Stage stage;
  World& world = stage.world;
  stage.may_move("kv_cache");
  const auto first = world.add("kv_cache", 4_MiB);
  const auto second = world.add("weights", 4_MiB);
  REQUIRE(world.pause());
  stage.occupy(second.address, 4_MiB);  // the first lies lower, and is taken on the way
  const auto report = world.resume();
  REQUIRE_FALSE(report);
  CHECK(report.error().code() == Code::moved);
  CHECK(world.parked_blocks() == 2);
  CHECK(world.table.find(first.address));
  CHECK(world.complaint() == "");
  stage.leave();
  const auto back = world.resume();
  REQUIRE(back);
  CHECK(back->moves.empty());
  CHECK(world.complaint() == "");
}

TEST_CASE("a block that is freed while its tag moves is freed where it was and where it went") {
  Stage stage;
  World& world = stage.world;
  stage.may_move("weights");
  auto& stays = world.add("weights", Bytes{3000});
  auto& freed = world.add("weights", Bytes{5000});
  REQUIRE(world.pause());
  stage.occupy(stays.address, 2_MiB);
  const auto report = world.transitions.resume(tag_name("weights"), world.settings, [&](const Progress&) {
    if (std::exchange(freed.live, false)) REQUIRE(world.table.free(freed.address) == BlockTable::Freed::done);
  });
  REQUIRE(report);
  stage.follow(*report);
  CHECK(world.complaint() == "");
  CHECK(world.is_resident(stays));
  stage.leave();
}

TEST_CASE("memory of others at the address of a parked block is theirs to free") {
  Stage stage;
  World& world = stage.world;
  auto& parked = world.add("weights", 4_MiB);
  REQUIRE(world.pause());
  stage.occupy(parked.address, parked.size);
  CHECK(world.table.free(parked.address) == BlockTable::Freed::foreign);
  CHECK(world.complaint() == "");
  stage.leave();
  parked.live = false;
  CHECK(world.table.free(parked.address) == BlockTable::Freed::done);
  CHECK_FALSE(world.table.find(parked.address));
}

TEST_CASE("memory of others that begins inside the place of a parked block is theirs to free") {
  Stage stage;
  World& world = stage.world;
  auto& parked = world.add("weights", 4_MiB);
  REQUIRE(world.pause());
  const DeviceAddress inside{parked.address.value + (2_MiB).value};
  stage.occupy(inside, 2_MiB);
  CHECK(world.table.free(inside) == BlockTable::Freed::foreign);
  stage.leave();
  CHECK(world.resume());
  CHECK(world.complaint() == "");
  CHECK_FALSE(world.table.free(inside));
}

TEST_CASE("new blocks do not take the addresses of parked ones") {
  Stage stage;
  World& world = stage.world;
  world.add("weights", 4_MiB);
  world.add("weights", 2_MiB);
  REQUIRE(world.pause(tag_name("weights")));
  world.add("other", 4_MiB);
  world.add("other", 2_MiB);
  world.add("other", Bytes{100});
  REQUIRE(world.resume());
  CHECK(world.complaint() == "");
}

TEST_CASE("where addresses can be kept, others do not get those of parked blocks") {
  Stage stage;
  stage.driver.stop();
  World& world = stage.world;
  const auto block = world.add("weights", 4_MiB);
  REQUIRE(world.pause());
  const cuda::ContextGuard guard(simulated(), reinterpret_cast<CUcontext>(world.context().value));
  for (int i = 0; i < 4; ++i) {
    CUdeviceptr got = 0;
    REQUIRE(simulated().cuMemAlloc_v2(&got, (2_MiB).value) == CUDA_SUCCESS);
    stage.occupiers.push_back(got);
    CHECK_FALSE(block.range().contains({got}));
  }
  REQUIRE(world.resume());
  CHECK(world.complaint() == "");
}

TEST_CASE("a resume whose blocks move and whose driver calls fail changes nothing and can be repeated") {
  Stage stage;
  World& world = stage.world;
  stage.may_move("weights");
  const auto taken = world.add("weights", 4_MiB);
  world.add("weights", Bytes{1000});
  world.add("kv_cache", 2_MiB);
  for_each_fault([&](const FaultyDriver::Plan& plan, const std::string& label) {
    INFO("failing: " << label);
    stage.driver.stop();
    stage.driver.start(cannot_keep);
    REQUIRE(world.pause());
    stage.occupy_addresses({world.blocks.front().address, taken.size});
    stage.driver.stop();
    stage.driver.start([&](std::size_t index, std::string_view name) {
      return cannot_keep(index, name) || (plan && plan(index, name));
    });
    auto report = world.resume();
    auto calls = stage.driver.stop();
    stage.driver.start(cannot_keep);
    if (report) stage.follow(*report);
    REQUIRE(world.complaint() == "");
    if (!report) {
      REQUIRE(world.parked_blocks() == 3);
      report = world.resume();
      INFO((report ? "" : report.error().message()));
      REQUIRE(report);
      stage.follow(*report);
    }
    REQUIRE(world.parked_blocks() == 0);
    REQUIRE(world.complaint() == "");
    stage.leave();
    return calls;
  });
}

TEST_CASE("an address that moved is stable in no report") {
  Stage stage;
  stage.world.add("weights", 2_MiB);
  for (const auto& region : stage.world.table.regions()) CHECK_FALSE(region.stable_address);
}

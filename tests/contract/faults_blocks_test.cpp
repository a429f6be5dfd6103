// SPDX-License-Identifier: Apache-2.0
// Allocating, freeing and giving a peer access while driver calls fail: an error means that nothing happened, and what
// the driver would not take back at once comes back with the next pause.
#include "tests/catch.hpp"
#include "tests/contract/fault_plans.hpp"
#include "tests/contract/world.hpp"

using namespace lowtide;
using namespace lowtide::test;

namespace {

class Stage {
 public:
  explicit Stage(const BackendKind& kind, std::size_t devices = 1)
      : driver(SimulatedDriver::instance().driver()),
        world(driver.table(), devices, {}, std::make_unique<DiskCalls>(), kind) {}

  void note() {
    cycle();  // after which neighbours have common extents
    before = held_now();
  }

  void cycle() {
    REQUIRE(world.pause());
    REQUIRE(world.resume());
    world.write_unknown();
    REQUIRE(world.complaint() == "");
  }

  // A pause takes back what an earlier undo had to leave. Registered host memory and address space are kept for later.
  void check_nothing_left() {
    cycle();
    Held after = held_now();
    after.registrations = before.registrations;
    after.reservations = before.reservations;
    REQUIRE(after == before);
  }

  std::uint64_t blocks() const {
    std::uint64_t count = 0;
    for (const auto& region : world.table.regions()) count += region.blocks;
    return count;
  }

  FaultyDriver driver;
  World world;
  Held before;
};

struct AllocateCase {
  const char* name;
  Bytes size;
  bool new_tag;
  Action action;
};
constexpr AllocateCase allocate_cases[] = {
    {"a large block", 3_MiB, false, Action::offload},
    {"a small block", 700_KiB, false, Action::offload},
    {"a small block of a tag that is kept", 9_KiB, false, Action::keep},
    {"the first block of a tag", 2_MiB, true, Action::offload},
};

std::vector<DriverCall> allocate_under(Stage& stage, const AllocateCase& one, const char* tag,
                                       const FaultyDriver::Plan& plan) {
  World& world = stage.world;
  const auto blocks = stage.blocks();
  stage.driver.start(plan);
  const auto address = world.table.allocate(world.backend(), tag_name(tag), world.context(), one.size);
  const auto calls = stage.driver.stop();
  if (address) {
    auto& block = world.adopt(*address, tag, one.size);
    REQUIRE(world.complaint() == "");
    block.live = false;
    REQUIRE(world.table.free(*address) == BlockTable::Freed::done);
  } else {
    REQUIRE((address.error().code() == Code::driver || address.error().code() == Code::device_memory));
  }
  REQUIRE(stage.blocks() == blocks);
  return calls;
}

struct FreeCase {
  const char* name;
  Bytes size;
  bool neighbour;
  bool parked;
};
constexpr FreeCase free_cases[] = {
    {"a large block", 3_MiB, false, false},
    {"the last small block of its extent", 5_KiB, false, false},
    {"one of two neighbours", 5_KiB, true, false},
    {"a parked block", 2_MiB, false, true},
};

std::vector<DriverCall> free_under(Stage& stage, DeviceAddress address, const FaultyDriver::Plan& plan) {
  World& world = stage.world;
  auto& block = world.blocks.back();
  stage.driver.start(plan);
  const auto freed = world.table.free(address);
  const auto calls = stage.driver.stop();
  INFO((freed ? "the free succeeded" : freed.error().message()));
  if (freed) {
    block.live = false;
    REQUIRE_FALSE(world.table.find(address));
  } else {
    REQUIRE(freed.error().code() == Code::driver);
    REQUIRE(world.table.find(address));
  }
  REQUIRE(world.complaint() == "");
  if (!freed) {
    block.live = false;
    REQUIRE(world.table.free(address) == BlockTable::Freed::done);
  }
  return calls;
}

}  // namespace

TEST_CASE("an allocation whose driver calls fail leaves no block and no memory") {
  const auto* kind = GENERATE(from_range(backend_kinds));
  for (const auto& one : allocate_cases) {
    DYNAMIC_SECTION(kind->name << ": " << one.name) {
      Stage stage(*kind);
      stage.world.set_action("first", one.action);
      if (!one.new_tag) {
        stage.world.add("first", 2_MiB);
        stage.world.add("first", 4_MiB);
      }
      stage.note();
      int tags = 0;
      for_each_fault([&](const FaultyDriver::Plan& plan, const std::string& label) {
        INFO("failing: " << label);
        const auto tag = one.new_tag ? "tag" + std::to_string(++tags) : "first";
        auto calls = allocate_under(stage, one, tag.c_str(), plan);
        allocate_under(stage, one, tag.c_str(), {});
        stage.check_nothing_left();
        return calls;
      });
    }
  }
}

TEST_CASE("a free whose driver calls fail leaves the block as it was") {
  const auto* kind = GENERATE(from_range(backend_kinds));
  for (const auto& one : free_cases) {
    DYNAMIC_SECTION(kind->name << ": " << one.name) {
      Stage stage(*kind);
      if (one.neighbour) stage.world.add("weights", 2_KiB);
      stage.note();
      for_each_fault([&](const FaultyDriver::Plan& plan, const std::string& label) {
        INFO("failing: " << label);
        const auto address = stage.world.add("weights", one.size).address;
        if (one.parked) REQUIRE(stage.world.pause());
        auto calls = free_under(stage, address, plan);
        stage.check_nothing_left();
        return calls;
      });
    }
  }
}

TEST_CASE("a free during the transition of its block is not lost when driver calls fail") {
  const auto* kind = GENERATE(from_range(backend_kinds));
  Stage stage(*kind);
  stage.world.add("weights", 2_MiB);
  stage.note();
  for_each_fault([&](const FaultyDriver::Plan& plan, const std::string& label) {
    INFO("failing: " << label);
    World& world = stage.world;
    auto& block = world.add("weights", 4_MiB);
    const auto free_block = [&](const Progress&) {
      if (std::exchange(block.live, false)) REQUIRE(world.table.free(block.address) == BlockTable::Freed::done);
    };
    stage.driver.start(plan);
    (void)world.transitions.pause(tag_name("weights"), world.settings, free_block);
    auto calls = stage.driver.stop();
    free_block({});
    REQUIRE(world.complaint() == "");
    REQUIRE_FALSE(world.table.find(block.address));
    stage.check_nothing_left();
    world.blocks.pop_back();
    return calls;
  });
}

TEST_CASE("peer access whose driver calls fail is there after the next resume") {
  Stage stage(vmm_kind, 2);
  World& world = stage.world;
  world.add("weights", 2_MiB, 0);
  world.add("weights", 3_KiB, 0);
  world.add("weights", 2_MiB, 1);
  const auto reaches = [&](const World::KnownBlock& block) {
    return SimulatedDriver::instance().accessible_from(1, block.address.value);
  };
  for_each_fault([&](const FaultyDriver::Plan& plan, const std::string& label) {
    INFO("failing: " << label);
    stage.driver.start(plan);
    const auto status = world.table.set_peer(DeviceId{0}, DeviceId{1}, true);
    auto calls = stage.driver.stop();
    REQUIRE(world.complaint() == "");
    if (status) REQUIRE((reaches(world.blocks[0]) && reaches(world.blocks[1])));
    REQUIRE(world.pause());
    REQUIRE(world.resume());
    REQUIRE((reaches(world.blocks[0]) && reaches(world.blocks[1])));
    REQUIRE(world.complaint() == "");
    REQUIRE(world.table.set_peer(DeviceId{0}, DeviceId{1}, false));
    REQUIRE(world.pause());
    REQUIRE(world.resume());
    REQUIRE_FALSE(reaches(world.blocks[0]));
    return calls;
  });
}

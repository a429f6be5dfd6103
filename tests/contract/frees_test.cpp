// SPDX-License-Identifier: Apache-2.0
// A free waits for the device before it takes a block away, and whatever another thread does meanwhile - a pause and a
// resume that lay the block's extent out anew, the same free once more, the end of the context - finds it on the books.
#include "tests/catch.hpp"
#include "tests/contract/fault_plans.hpp"
#include "tests/contract/world.hpp"

using namespace lowtide;
using namespace lowtide::test;

namespace {

class Stage {
 public:
  Stage() : driver(SimulatedDriver::instance().driver()), world(driver.table(), 1) {}

  std::size_t add(Bytes size) {
    world.add("weights", size);
    return world.blocks.size() - 1;
  }

  /// Frees a block, and does `meanwhile` when the free begins to wait for the device. If the wait `fails`, so must the
  /// free.
  void free_while(std::size_t index, bool fails, const std::function<void()>& meanwhile) {
    bool began = false;
    driver.start([&](std::size_t, std::string_view name) {
      if (began || name != "cuCtxSynchronize") return false;
      began = true;
      meanwhile();
      return fails;
    });
    const auto freed = world.table.free(world.blocks[index].address);
    driver.stop();
    REQUIRE(began);
    REQUIRE(freed.has_value() != fails);
    world.blocks[index].live = fails;
  }

  void cycle() {
    REQUIRE(world.pause());
    REQUIRE(world.resume());
  }

  std::uint64_t counted() const { return world.table.regions().front().blocks; }

  void check_others_and_end() {
    REQUIRE(world.complaint() == "");
    cycle();
    REQUIRE(world.complaint() == "");
    world.free_all();
    REQUIRE(counted() == 0);
    REQUIRE(held_now().handles == 0);
    REQUIRE(held_now().mappings == 0);
  }

  FaultyDriver driver;
  World world;
};

}  // namespace

TEST_CASE("neighbours become one extent while a free waits for the device") {
  const bool fails = GENERATE(false, true);
  const std::size_t which = GENERATE(0, 1, 2);
  Stage stage;
  for (int i = 0; i < 3; ++i) stage.add(3_MiB);
  stage.free_while(which, fails, [&] { stage.cycle(); });
  CHECK(stage.counted() == (fails ? 3 : 2));
  stage.check_others_and_end();
}

TEST_CASE("an extent loses its freed parts while the free of another part waits for the device") {
  const bool fails = GENERATE(false, true);
  Stage stage;
  for (int i = 0; i < 4; ++i) stage.add(3_MiB);
  stage.cycle();  // all four have one extent now
  stage.free_while(2, fails, [&] {
    stage.world.blocks[1].live = false;
    REQUIRE(stage.world.table.free(stage.world.blocks[1].address));
    stage.cycle();
  });
  CHECK(stage.counted() == (fails ? 3 : 2));
  stage.check_others_and_end();
}

TEST_CASE("a tag pauses while a free waits for the device") {
  const bool fails = GENERATE(false, true);
  Stage stage;
  for (int i = 0; i < 2; ++i) stage.add(3_MiB);
  stage.free_while(0, fails, [&] { REQUIRE(stage.world.pause()); });
  CHECK(stage.world.complaint() == "");
  REQUIRE(stage.world.resume());
  CHECK(stage.counted() == (fails ? 2 : 1));
  stage.check_others_and_end();
}

TEST_CASE("a block is freed twice at once") {
  Stage stage;
  for (int i = 0; i < 2; ++i) stage.add(3_MiB);
  stage.free_while(0, false, [&] {
    const auto again = stage.world.table.free(stage.world.blocks[0].address);
    REQUIRE_FALSE(again);
    CHECK(again.error().code() == Code::invalid);
  });
  CHECK(stage.counted() == 1);
  stage.check_others_and_end();
}

TEST_CASE("a context ends while one of its blocks is being freed") {
  Stage stage;
  for (int i = 0; i < 2; ++i) stage.add(3_MiB);
  stage.free_while(0, false, [&] { stage.world.table.drop_context(stage.world.context()); });
  CHECK(stage.counted() == 0);
  CHECK(held_now().handles == 0);
  CHECK(stage.world.table.free(stage.world.blocks[1].address) == BlockTable::Freed::done);  // died with its context
  CHECK_FALSE(stage.world.table.free(stage.world.blocks[1].address));
  stage.world.blocks.clear();
}

TEST_CASE("memory that was given to others, and could not be given back by its free, does not refuse a pause") {
  Stage stage;
  for (int i = 0; i < 2; ++i) stage.add(3_MiB);
  auto& block = stage.world.blocks[0];
  stage.world.table.mark_shared(block.address, "a test");
  CHECK_FALSE(stage.world.pause());
  stage.driver.start([](std::size_t, std::string_view name) { return name == "cuMemRelease"; });
  REQUIRE(stage.world.table.free(block.address));
  (void)stage.driver.stop();
  block.live = false;
  stage.check_others_and_end();
}

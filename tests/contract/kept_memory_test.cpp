// SPDX-License-Identifier: Apache-2.0
// What a resume keeps for the next pause, and what blocks that are gone leave, stands in nobody's way; and how a resume
// joins neighbours.
#include <algorithm>
#include <future>

#include "tests/catch.hpp"
#include "tests/contract/faulty_driver.hpp"
#include "tests/contract/world.hpp"

using namespace lowtide;
using namespace lowtide::test;

namespace {

const cuda::Driver& simulated() { return SimulatedDriver::instance().driver(); }

}  // namespace

TEST_CASE("what one tag's resume kept does not stand in the way of another tag's pause") {
  World world(simulated(), 1, {.budget = 96_MiB});
  world.add("weights", 64_MiB);
  world.add("lora", 64_MiB);
  REQUIRE(world.pause(tag_name("weights")));
  REQUIRE(world.resume(tag_name("weights")));
  CHECK(world.pause(tag_name("lora")));  // 64 MiB of backups is all that is ever needed at once
}

TEST_CASE("what a tag kept in host memory does not stand in the way of its own pause to disk") {
  World world(simulated(), 1, {.budget = 64_MiB});
  world.add("weights", 64_MiB);
  REQUIRE(world.pause());
  REQUIRE(world.resume());
  world.set_store("weights", Place::disk);
  CHECK(world.pause());
  CHECK(world.store.retained_bytes() == Bytes{});
}

TEST_CASE("a resume joins no more where device.slack is exceeded") {
  World world(simulated(), 1);
  world.settings.device_slack = {};
  for (int i = 0; i < 64; ++i) world.add("weights", Bytes{1'153'434});
  REQUIRE(world.table.regions().front().slack > 32_MiB);
  const auto handles = held_now().handles;
  REQUIRE(world.pause());
  REQUIRE(world.resume());
  CHECK(held_now().handles == handles);  // "With 0, a resume joins only while nothing is wasted at all"
}

TEST_CASE("the host memory of parked blocks that were freed can be given back") {
  World world(simulated(), 1);
  for (int i = 0; i < 64; ++i) world.add("lora", 2_MiB);
  REQUIRE(world.pause());
  REQUIRE(world.resume());
  REQUIRE(world.pause());
  for (std::size_t i = 1; i < 64; ++i) {
    REQUIRE(world.table.free(world.blocks[i].address));
    world.blocks[i].live = false;
  }
  REQUIRE(world.transitions.trim());
  CHECK(world.store.backup_bytes() <= 4_MiB);  // 2 MiB are parked
}

TEST_CASE("neighbours in the same store are joined although others of the tag lie in the other store") {
  World world(simulated(), 1);
  for (int i = 0; i < 40; ++i) world.add("weights", 2_MiB);
  REQUIRE(world.pause());
  world.set_store("weights", Place::disk);
  for (int i = 0; i < 40; ++i) world.add("weights", 2_MiB);
  REQUIRE(world.pause());
  REQUIRE(world.resume());
  CHECK(held_now().handles <= 8);
}

TEST_CASE("others allocate while the host memory of blocks that were freed in a parked extent goes back") {
  FaultyDriver driver(simulated());
  World world(driver.table(), 1, {.retain = BackupSettings::Retain::none});
  for (int i = 0; i < 32; ++i) world.add("weights", 2_MiB);
  REQUIRE(world.pause());
  REQUIRE(world.resume());
  REQUIRE(world.pause());  // one extent, in two slabs
  for (std::size_t i = 0; i < 16; ++i) {
    REQUIRE(world.table.free(world.blocks[i].address));
    world.blocks[i].live = false;
  }
  std::vector<std::future<void>> asked;
  bool answered = true;
  driver.start([&](std::size_t, std::string_view name) {
    if (name != "cuMemHostUnregister") return false;
    asked.push_back(std::async(std::launch::async, [&] { (void)world.table.regions(); }));
    answered = answered && asked.back().wait_for(std::chrono::seconds{20}) == std::future_status::ready;
    return false;
  });
  const auto report = world.resume();
  driver.stop();
  CHECK(report);
  CHECK_FALSE(asked.empty());
  CHECK(answered);
  CHECK(world.complaint() == "");
}

TEST_CASE("a small block goes beside another where it fits, and where one was freed") {
  World world(simulated(), 1);
  std::vector<DeviceAddress> blocks;
  for (int i = 0; i < 300; ++i) {
    const auto size = i % 3 == 0 ? Bytes{700'000} : Bytes{1'200'000};  // every third fits beside an earlier one
    const auto address = world.table.allocate(world.backend(), tag_name("weights"), world.context(), size);
    REQUIRE(address);
    blocks.push_back(*address);
  }
  CHECK(held_now().handles == 200);
  REQUIRE(world.pause());
  REQUIRE(world.resume());
  const auto handles = held_now().handles;
  for (std::size_t i = 0; i < blocks.size(); i += 2) REQUIRE(world.table.free(blocks[i]));
  for (std::size_t i = 0; i < blocks.size(); i += 2) {
    const auto size = i % 3 == 0 ? Bytes{700'000} : Bytes{1'200'000};
    const auto address = world.table.allocate(world.backend(), tag_name("weights"), world.context(), size);
    REQUIRE(address);
    blocks[i] = *address;
  }
  CHECK(held_now().handles <= handles);  // what was freed is found again
  for (const auto address : blocks) CHECK(world.table.free(address));
}

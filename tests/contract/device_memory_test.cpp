// SPDX-License-Identifier: Apache-2.0
// A resume that finds the device full: an ordinary answer with numbers, nothing changed, and it works once there is
// room.
#include <thread>

#include "tests/catch.hpp"
#include "tests/contract/world.hpp"

using namespace lowtide;
using namespace lowtide::test;
using Catch::Matchers::Contains;

namespace {

/// Another user of the device: takes plain memory until `left` bytes are free.
class Neighbour {
 public:
  Neighbour(World& world, std::size_t device, Bytes left) : world_(world), device_(device) {
    const cuda::ContextGuard guard(driver(), reinterpret_cast<CUcontext>(world.context(device).value));
    const Bytes free = world.backend(device).memory_info()->free;
    REQUIRE(driver().cuMemAlloc_v2(&block_, (free - left).value) == CUDA_SUCCESS);
  }
  Neighbour(const Neighbour&) = delete;
  Neighbour& operator=(const Neighbour&) = delete;
  ~Neighbour() { leave(); }
  void leave() {
    const cuda::ContextGuard guard(driver(), reinterpret_cast<CUcontext>(world_.context(device_).value));
    if (std::exchange(gone_, true)) return;
    (void)driver().cuMemFree_v2(block_);
  }

 private:
  static const cuda::Driver& driver() { return SimulatedDriver::instance().driver(); }
  World& world_;
  std::size_t device_;
  CUdeviceptr block_ = 0;
  bool gone_ = false;
};

struct Stage {
  Stage() : world(SimulatedDriver::instance().driver(), 2) {
    world.set_action("kv_cache", Action::discard);
    world.add("weights", 4_MiB, 0);
    world.add("weights", 6_MiB, 1);
    world.add("kv_cache", 2_MiB, 1);
    REQUIRE(world.pause());
    REQUIRE(world.complaint() == "");
  }
  void check_unchanged(const Result<TransitionReport>& report) {
    REQUIRE_FALSE(report);
    REQUIRE(report.error().code() == Code::device_memory);
    REQUIRE(world.parked_blocks() == 3);
    REQUIRE(world.complaint() == "");
  }
  World world;
};

}  // namespace

TEST_CASE("a resume on a full device says what it needs and what is free, and changes nothing") {
  Stage stage;
  {
    Neighbour neighbour(stage.world, 1, 4_MiB);
    const Held full = held_now();
    const auto report = stage.world.resume();
    stage.check_unchanged(report);
    CHECK_THAT(report.error().message(), Contains("device 1"));
    CHECK_THAT(report.error().message(), Contains("needs 8.00 MiB"));
    CHECK_THAT(report.error().message(), Contains("4.00 MiB of"));
    REQUIRE(held_now() == full);
  }
  REQUIRE(stage.world.resume());
  REQUIRE(stage.world.parked_blocks() == 0);
  REQUIRE(stage.world.complaint() == "");
}

TEST_CASE("a tag that fits is resumed although the others do not") {
  Stage stage;
  Neighbour neighbour(stage.world, 1, 2_MiB);
  stage.check_unchanged(stage.world.resume(tag_name("weights")));
  REQUIRE(stage.world.resume(tag_name("kv_cache")));
  REQUIRE(stage.world.parked_blocks() == 2);
}

TEST_CASE("a resume that may wait succeeds when room appears") {
  Stage stage;
  Neighbour neighbour(stage.world, 1, 4_MiB);
  stage.world.settings.device_wait = std::chrono::minutes{1};
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds{50});
    neighbour.leave();
  });
  const auto report = stage.world.resume();
  other.join();
  REQUIRE(report);
  REQUIRE(stage.world.parked_blocks() == 0);
  REQUIRE(stage.world.complaint() == "");
}

TEST_CASE("a resume that waits in vain answers after its time") {
  Stage stage;
  Neighbour neighbour(stage.world, 0, 2_MiB);
  stage.world.settings.device_wait = std::chrono::milliseconds{30};
  const auto start = std::chrono::steady_clock::now();
  stage.check_unchanged(stage.world.resume());
  CHECK(std::chrono::steady_clock::now() - start >= *stage.world.settings.device_wait);
}

TEST_CASE("other tags can be paused to make room while a resume waits") {
  Stage stage;
  World& world = stage.world;
  REQUIRE(world.resume(tag_name("kv_cache")));
  world.settings.device_wait = std::chrono::minutes{1};
  Neighbour neighbour(world, 1, 4_MiB);
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds{50});
    (void)world.transitions.pause(tag_name("kv_cache"), world.settings, {});
  });
  const auto report = world.resume(tag_name("weights"));
  other.join();
  REQUIRE(report);
  REQUIRE(world.parked_blocks() == 1);
  REQUIRE(world.complaint() == "");
}

TEST_CASE("an allocation on a full device is refused and leaves nothing") {
  Stage stage;
  Neighbour neighbour(stage.world, 0, 2_MiB);
  const Held full = held_now();
  for (const Bytes size : {3_MiB, 600_MiB}) {
    const auto address =
        stage.world.table.allocate(stage.world.backend(), tag_name("weights"), stage.world.context(), size);
    REQUIRE_FALSE(address);
    REQUIRE(address.error().code() == Code::device_memory);
    REQUIRE(held_now() == full);
  }
}

TEST_CASE("a pause needs no free device byte") {
  Stage stage;
  REQUIRE(stage.world.resume());
  Neighbour first(stage.world, 0, Bytes{0});
  Neighbour second(stage.world, 1, Bytes{0});
  REQUIRE(stage.world.pause());
  REQUIRE(stage.world.parked_blocks() == 3);
  REQUIRE(stage.world.complaint() == "");
}

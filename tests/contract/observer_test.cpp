// SPDX-License-Identifier: Apache-2.0
// What an observer is told of waits and copies.
#include "allocator/core/observer.hpp"

#include <future>
#include <map>

#include "tests/catch.hpp"
#include "tests/contract/world.hpp"

using namespace lowtide;
using namespace lowtide::test;
using namespace std::chrono_literals;

namespace {

/// Adds up what it is told.
struct Notes final : Observer {
  void transition_begins(Step, const std::optional<TagName>&) noexcept override {}
  void transition_ended(Step, const std::optional<TagName>&, std::chrono::nanoseconds,
                        const Result<TransitionReport>&) noexcept override {}
  void updated(Update, const TagName&, std::uint64_t, const Status&) noexcept override {}
  void phase_entered(const TagName&, bool) noexcept override {}
  void waited(Wait what, std::chrono::nanoseconds time, Bytes memory) noexcept override {
    ++waits[what].times;
    waits[what].ns += time.count();
    waits[what].memory += memory;
  }
  void copied(Copy direction, DeviceId device, DeviceAddress, Bytes bytes, std::chrono::nanoseconds) noexcept override {
    copies[{direction, device}] += bytes;
    if (table != nullptr) regions = table->regions();
  }
  void context_seen(DeviceId, ContextId) noexcept override {}
  void context_dropping(ContextId, std::span<const BlockNote>) noexcept override {}
  void context_dropped(ContextId) noexcept override {}

  struct Waits {
    int times = 0;
    std::int64_t ns = 0;
    Bytes memory;
  };
  std::map<Wait, Waits> waits;
  std::map<std::pair<Copy, DeviceId>, Bytes> copies;
  const BlockTable* table = nullptr;
  std::vector<RegionInfo> regions;  ///< as the last copy was told of, if there is a table
};

struct Stage {
  explicit Stage(std::size_t device_count = 1) : world(SimulatedDriver::instance().driver(), device_count) {
    world.transitions.set_observer(notes);
    world.captures.set_observer(notes);
  }
  Notes notes;
  World world;
};

/// Says once that another process is in the way, or that there is no room.
struct NotNow final : Admission {
  explicit NotNow(bool its_for_others) : for_others(its_for_others) {}
  Result<std::unique_ptr<Admitted>> admit(const TransitionPlan&) override {
    if (asked++ == 0) return fail(Code::device_memory, "not now");
    return nullptr;
  }
  bool waits_for_others() override { return for_others; }
  Status admit(Update, const TagName&, std::uint64_t) override { return {}; }
  std::vector<TagName> bumped_by(TransitionPlan::Step, const TagName&) override { return {}; }
  std::vector<TagName> bumped_by(Update, const TagName&) override { return {}; }
  const bool for_others;
  int asked = 0;
};

}  // namespace

TEST_CASE("a copy is told of for each device, with what was copied and not what was dropped") {
  Stage stage(2);
  stage.world.add("weights", 3_MiB, 0);
  stage.world.add("weights", 5_MiB, 1);
  stage.world.set_action("kv_cache", Action::discard);
  stage.world.add("kv_cache", 8_MiB, 0);
  REQUIRE(stage.world.pause());
  REQUIRE(stage.world.resume());
  CHECK(stage.world.complaint() == "");
  for (const auto direction : {Observer::Copy::out, Observer::Copy::in}) {
    CHECK(stage.notes.copies[{direction, DeviceId{0}}] == 3_MiB);
    CHECK(stage.notes.copies[{direction, DeviceId{1}}] == 5_MiB);
  }
}

TEST_CASE("what a resume fills is on the device and not resident, and nobody's slack") {
  Stage stage;
  stage.notes.table = &stage.world.table;
  stage.world.add("weights", 6_MiB);
  REQUIRE(stage.world.pause());
  stage.notes.regions.clear();
  REQUIRE(stage.world.resume());
  REQUIRE(stage.notes.regions.size() == 1);
  const auto& during = stage.notes.regions.front();
  CHECK(during.on_device == 6_MiB);
  CHECK(during.slack == Bytes{});
  CHECK(during.resident == Bytes{});
  CHECK(during.parked == 6_MiB);
}

TEST_CASE("a pause tells how long the devices took to come to rest, once") {
  Stage stage;
  stage.world.add("weights", 2_MiB);
  REQUIRE(stage.world.pause());
  CHECK(stage.notes.waits[Observer::Wait::drain].times == 1);
  REQUIRE(stage.world.resume());
  CHECK(stage.notes.waits.size() == 1);
}

TEST_CASE("a wait for room is told of once, with the memory that it got, and for whom it was") {
  for (const bool for_others : {false, true}) {
    Stage stage;
    NotNow policy(for_others);
    stage.world.transitions.set_admission(policy);
    stage.world.settings.device_wait = 10s;
    policy.asked = 1;
    stage.world.add("weights", 2_MiB);
    REQUIRE(stage.world.pause());
    policy.asked = 0;
    REQUIRE(stage.world.resume());
    const auto what = for_others ? Observer::Wait::other : Observer::Wait::room;
    CHECK(stage.notes.waits[what].times == 1);
    CHECK(stage.notes.waits[what].memory == 2_MiB);
    CHECK(stage.notes.waits.size() == 2);
  }
}

TEST_CASE("a wait for room that ends without it got nothing") {
  Stage stage;
  NotNow policy(false);
  stage.world.add("weights", 2_MiB);
  REQUIRE(stage.world.pause());
  stage.world.transitions.set_admission(policy);
  REQUIRE_FALSE(stage.world.resume());
  CHECK(stage.notes.waits[Observer::Wait::room].times == 0);
  CHECK(stage.notes.copies[{Observer::Copy::in, DeviceId{0}}] == Bytes{});
  REQUIRE(stage.world.resume());
}

TEST_CASE("a capture that waits for a transition is told of when it goes on") {
  Stage stage;
  auto block = stage.world.captures.block();
  auto capture = std::async(std::launch::async, [&] { stage.world.captures.begin(); });
  CHECK(capture.wait_for(20ms) == std::future_status::timeout);
  { const auto ended = std::move(*block); }
  capture.get();
  CHECK(stage.notes.waits[Observer::Wait::capture].times == 1);
  stage.world.captures.began(nullptr, false);
  stage.world.captures.begin();
  stage.world.captures.began(nullptr, false);
  CHECK(stage.notes.waits[Observer::Wait::capture].times == 1);
}

// SPDX-License-Identifier: Apache-2.0
// What a transition asks the policy, and what it tells it, whichever way it ends.
#include <future>

#include "tests/contract/faulty_driver.hpp"
#include "tests/contract/updates_world.hpp"

using namespace lowtide;
using namespace lowtide::test;

namespace {

/// A policy that books what it is told. `answer` decides.
class BookingPolicy final : public Admission {
 public:
  Result<std::unique_ptr<Admitted>> admit(const TransitionPlan& plan) override {
    ++asked;
    last = plan;
    if (auto status = answer(); !status) return fail(status.error());
    for (const TagPlan& row : plan.tags) reserved += row.memory;
    return std::make_unique<Booking>(*this);
  }
  Status admit(Update, const TagName&, std::uint64_t version) override {
    return version == refused_version ? fail(Code::refused, "a rule stands in the way") : Status();
  }
  void given_up() noexcept override { ++gave_up; }
  std::vector<TagName> bumped_by(TransitionPlan::Step, const TagName&) override { return bumps; }
  std::vector<TagName> bumped_by(Update step, const TagName&) override {
    return step == Update::commit ? bumps : bumps_of_begin;
  }

  struct Booking final : Admitted {
    explicit Booking(BookingPolicy& its_policy) : policy(its_policy) {}
    void taken(DeviceId, Bytes memory) noexcept override {
      policy.taken += memory;
      policy.most_at_once = std::max(policy.most_at_once, policy.taken);
    }
    void ended(bool done, std::span<const TagMemory> now) noexcept override {
      ++(done ? policy.done : policy.failed);
      policy.held = {};
      for (const TagMemory& row : now) policy.held += row.held;
    }
    BookingPolicy& policy;
  };

  std::function<Status()> answer = [] { return Status(); };
  TransitionPlan last;
  Bytes reserved, taken, most_at_once, held;
  int asked = 0, done = 0, failed = 0, gave_up = 0;
  std::uint64_t refused_version = ~0ull;
  std::vector<TagName> bumps, bumps_of_begin;
};

struct Stage : UpdatesWorld {
  explicit Stage(const cuda::Driver& driver = SimulatedDriver::instance().driver())
      : UpdatesWorld(*backend_kinds.front(), driver) {
    world.transitions.set_admission(policy);
  }
  BookingPolicy policy;
};

}  // namespace

TEST_CASE("a transition says which tags it moves, how much device memory that is and what loses its content") {
  Stage stage;
  stage.add(3_MiB);
  stage.world.add("kv_cache", 5_MiB);
  stage.world.set_action("kv_cache", Action::discard);
  REQUIRE(stage.world.pause());
  const auto& plan = stage.policy.last;
  CHECK(plan.step == TransitionPlan::Step::pause);
  CHECK_FALSE(plan.asked);
  REQUIRE(plan.tags.size() == 2);
  CHECK(plan.tags[0].tag == tag_name("kv_cache"));
  CHECK(plan.tags[0].memory == 6_MiB);
  CHECK(plan.tags[0].discarded == 5_MiB);
  CHECK(plan.tags[1].memory == 4_MiB);
  CHECK(plan.tags[1].discarded == Bytes{0});
  CHECK(stage.policy.held == Bytes{0});
  REQUIRE(stage.resume());
  CHECK(stage.policy.last.asked == stage.weights);
  REQUIRE(stage.policy.last.tags.size() == 1);
  CHECK(stage.policy.last.tags[0].memory == 4_MiB);
  CHECK(stage.policy.held == 4_MiB);
  CHECK(stage.policy.done == 2);
}

TEST_CASE("device memory is taken once for what was reserved, and given up after a failure") {
  FaultyDriver driver(SimulatedDriver::instance().driver());
  Stage stage(driver.table());
  for (int i = 0; i < 3; ++i) stage.add(8_MiB);
  REQUIRE(stage.pause(Action::offload));
  stage.policy.reserved = {};
  // A copy out of the driver's memory fails: all goes back.
  driver.start([](std::size_t, std::string_view name) { return name == "cuMemcpyHtoDAsync_v2"; });
  CHECK_FALSE(stage.resume());
  (void)driver.stop();
  CHECK(stage.policy.failed == 1);
  CHECK(stage.policy.held == Bytes{0});
  stage.policy.taken = stage.policy.reserved = {};
  REQUIRE(stage.resume());
  CHECK(stage.policy.reserved == 24_MiB);
  CHECK(stage.policy.taken == 24_MiB);
  CHECK(stage.policy.held == 24_MiB);
  CHECK(stage.world.complaint() == "");
}

TEST_CASE("a resume that is told to wait gives its turn to the pause that makes the room") {
  Stage stage;
  stage.add(4_MiB);
  stage.world.add("kv_cache", 4_MiB);
  REQUIRE(stage.pause(Action::offload));
  stage.world.settings.device_wait = std::chrono::minutes{1};
  stage.policy.answer = [&]() -> Status {
    const bool pauses = stage.policy.last.step == TransitionPlan::Step::pause;
    if (pauses || stage.policy.done >= 2) return {};
    return fail(Code::device_memory, "kv_cache has the room");
  };
  auto resumed = std::async(std::launch::async, [&] { return stage.resume(); });
  REQUIRE(stage.world.transitions.pause(tag_name("kv_cache"), stage.world.settings, {}));
  CHECK(resumed.get());
  CHECK(stage.policy.done == 3);
}

TEST_CASE("a refusal of order is the caller's at once, and one for want of memory when the wait is over") {
  Stage stage;
  stage.add(4_MiB);
  stage.world.settings.device_wait = std::chrono::milliseconds{30};
  stage.policy.answer = [] { return fail(Code::refused, "weights first"); };
  auto refused = stage.pause(Action::offload);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code() == Code::refused);
  CHECK(stage.policy.asked == 1);
  stage.policy.answer = [] { return fail(Code::device_memory, "no room"); };
  refused = stage.pause(Action::offload);
  REQUIRE_FALSE(refused);
  CHECK(std::string(refused.error().message()) == "no room");
  CHECK(stage.policy.asked > 2);
  CHECK(stage.policy.done + stage.policy.failed == 0);
  CHECK(stage.policy.gave_up == 2);
  CHECK(stage.world.parked_blocks() == 0);
}

TEST_CASE("an update that the policy refuses changes nothing, and one that it admits bumps what it names") {
  Stage stage;
  stage.add(2_MiB);
  stage.policy.refused_version = 5;
  CHECK_FALSE(stage.begin(5));
  CHECK(stage.state() == "valid v0");
  stage.policy.bumps = {tag_name("kv_cache")};
  stage.policy.bumps_of_begin = {tag_name("lora")};
  REQUIRE(stage.begin(6));
  CHECK(stage.world.table.updates(tag_name("lora"))->version == 1);
  stage.policy.refused_version = 6;
  CHECK_FALSE(stage.commit(6));
  CHECK(stage.state() == "syncing v0");
  stage.policy.refused_version = 0;
  REQUIRE(stage.commit(6));
  CHECK(stage.world.table.updates(tag_name("kv_cache"))->version == 1);
}

TEST_CASE("a pause and a resume bump what a rule names once they are done, and not when they fail or do nothing") {
  FaultyDriver driver(SimulatedDriver::instance().driver());
  Stage stage(driver.table());
  stage.add(8_MiB);
  stage.policy.bumps = {tag_name("kv_cache")};
  const auto version = [&] { return stage.world.table.updates(tag_name("kv_cache"))->version; };
  REQUIRE(stage.pause(Action::offload));
  CHECK(version() == 1);
  REQUIRE(stage.pause(Action::offload));
  CHECK(version() == 1);
  driver.start([](std::size_t, std::string_view name) { return name == "cuMemcpyHtoDAsync_v2"; });
  CHECK_FALSE(stage.resume());
  (void)driver.stop();
  CHECK(version() == 1);
  REQUIRE(stage.resume());
  CHECK(version() == 2);
}

TEST_CASE("the version after the last one is not the first one again") {
  Stage stage;
  stage.add(2_MiB);
  stage.policy.bumps = {stage.weights};
  REQUIRE(stage.begin(~0ull - 1));
  stage.policy.refused_version = 0;
  REQUIRE(stage.commit(~0ull - 1));
  REQUIRE(stage.pause(Action::offload));
  REQUIRE(stage.resume());
  CHECK(stage.state() == "valid v" + std::to_string(~0ull));
}

// SPDX-License-Identifier: Apache-2.0
// The host has no memory: the n-th operator new of an operation fails, for every n, once and for good. The core may
// throw (its callers catch); the state is as before or as asked all the same, and the next try works.
#include <signal.h>

#include <new>

#include "allocator/core/drain.hpp"
#include "tests/catch.hpp"
#include "tests/contract/failing_new.hpp"
#include "tests/contract/world.hpp"
#include "tests/sanitized.hpp"

using namespace lowtide;
using namespace lowtide::test;

namespace {

enum class Outcome { done, error, out_of_memory };

template <class Operation>
Outcome attempt(std::uint64_t nth, bool for_good, bool& failed, Operation&& operation) {
  FailingNew failing(nth, for_good);
  Outcome outcome{};
  try {
    outcome = operation() ? Outcome::done : Outcome::error;
  } catch (const std::bad_alloc&) {
    outcome = Outcome::out_of_memory;
  }
  failed = failing.failed();
  return outcome;
}

/// Where an operation pins much memory.
constexpr std::uint64_t sampled = sanitized ? 8 * fault_step : 1;

/// Runs `operation` with each of its allocations failing; `check` looks at what came of it and puts everything back.
template <class Operation, class Check>
void for_each_allocation(Operation operation, Check check, std::uint64_t step = fault_step) {
  for (const bool for_good : {false, true}) {
    bool failed = true;
    std::uint64_t nth = 1;
    for (; failed; nth += step) {
      INFO("allocation " << nth << (for_good ? " and all later ones" : ""));
      const auto outcome = attempt(nth, for_good, failed, operation);
      if (!failed) REQUIRE(outcome == Outcome::done);
      check(outcome);
    }
    CHECK(nth > 2);
  }
}

const cuda::Driver& simulated() {
  static const cuda::Driver driver = sheltered_from_failing_new(SimulatedDriver::instance().driver());
  return driver;
}

class Stage {
 public:
  explicit Stage(BackupSettings backup = {}, Place place = Place::host) : world(simulated(), 2, backup) {
    world.set_store("weights", place);
    world.set_action("kv_cache", Action::discard);
    world.add("weights", 2_MiB, 0);
    world.add("weights", 3_KiB, 1);
    world.add("kv_cache", 2_MiB, 0);
    world.set_paused_access("lora", PausedAccess::host);
    world.add("lora", 2_MiB, 0);
    REQUIRE(world.pause());
    REQUIRE(world.resume());
    world.write_unknown();
    before = held_now();
  }

  void check_cycle() {
    REQUIRE(world.complaint() == "");
    REQUIRE(world.pause());
    REQUIRE(world.parked_blocks() == world.blocks.size());
    REQUIRE(world.complaint() == "");
    REQUIRE(world.resume());
    world.write_unknown();
    REQUIRE(world.complaint() == "");
    Held after = held_now();
    after.reservations = before.reservations;
    REQUIRE(after == before);
  }

  World world;
  Held before;
};

}  // namespace

TEST_CASE("an allocation survives a failing operator new") {
  Stage stage;
  World& world = stage.world;
  int tags = 0;
  for (const Bytes size : {2_MiB, 3_KiB}) {
    for (const bool new_tag : {false, true}) {
      std::string tag = "weights";
      DeviceAddress address{};
      for_each_allocation(
          [&] {
            const auto result = world.table.allocate(world.backend(), tag_name(tag), world.context(), size);
            if (result) address = *result;
            return result.has_value();
          },
          [&](Outcome outcome) {
            REQUIRE(outcome != Outcome::error);
            if (outcome == Outcome::done) REQUIRE(world.table.free(address) == BlockTable::Freed::done);
            stage.check_cycle();
            if (new_tag) tag = "tag" + std::to_string(++tags);
          });
    }
  }
}

TEST_CASE("a free needs no host memory") {
  Stage stage;
  World& world = stage.world;
  for (const bool parked : {false, true}) {
    for (const Bytes size : {2_MiB, 3_KiB}) {
      const auto address = world.table.allocate(world.backend(), tag_name("weights"), world.context(), size);
      REQUIRE(address);
      if (parked) REQUIRE(world.pause(tag_name("weights")));
      bool failed = false;
      const auto outcome = attempt(1, true, failed, [&] { return world.table.free(*address).has_value(); });
      CHECK_FALSE(failed);
      REQUIRE(outcome == Outcome::done);
      REQUIRE_FALSE(world.table.find(*address));
      REQUIRE(world.resume());
      stage.check_cycle();
    }
  }
}

TEST_CASE("a pause survives a failing operator new") {
  using Retain = BackupSettings::Retain;
  const std::pair<BackupSettings, Place> variants[] = {{{Retain::automatic}, Place::host},
                                                       {{Retain::none}, Place::host},
                                                       {{Retain::automatic, true, {}}, Place::disk},
                                                       {{Retain::none}, Place::disk}};
  for (const auto& [backup, place] : variants) {
    Stage stage(backup, place);
    World& world = stage.world;
    for_each_allocation([&] { return world.pause().has_value(); },
                        [&](Outcome outcome) {
                          REQUIRE(world.complaint() == "");
                          if (outcome == Outcome::done) {
                            REQUIRE(world.parked_blocks() == world.blocks.size());
                          } else {
                            REQUIRE(world.parked_blocks() == 0);
                            REQUIRE(world.backup_bytes() == Bytes{});
                          }
                          REQUIRE(world.pause());
                          REQUIRE(world.resume());
                          world.write_unknown();
                          stage.check_cycle();
                        });
  }
}

TEST_CASE("a first pause, which starts threads, survives a failing operator new") {
  World world(simulated(), 1);
  world.add("weights", 34_MiB);  // two slabs
  for_each_allocation([&] { return world.pause().has_value(); },
                      [&](Outcome outcome) {
                        REQUIRE(world.complaint() == "");
                        REQUIRE(world.parked_blocks() == (outcome == Outcome::done ? 1 : 0));
                        REQUIRE(world.pause());
                        REQUIRE(world.resume());
                        REQUIRE(world.transitions.trim());  // so that the next pause is a first one again
                      },
                      sampled);
  CHECK(world.complaint() == "");
}

TEST_CASE("a resume survives a failing operator new") {
  const auto place = GENERATE(Place::host, Place::disk);
  Stage stage({.verify = place == Place::disk}, place);
  World& world = stage.world;
  REQUIRE(world.pause());
  for_each_allocation([&] { return world.resume().has_value(); },
                      [&](Outcome outcome) {
                        REQUIRE(world.complaint() == "");
                        REQUIRE(world.parked_blocks() == (outcome == Outcome::done ? 0 : world.blocks.size()));
                        REQUIRE(world.resume());
                        world.write_unknown();
                        stage.check_cycle();
                        REQUIRE(world.pause());
                      });
  REQUIRE(world.resume());
  world.write_unknown();
}

TEST_CASE("peer access, contexts and backups survive a failing operator new") {
  Stage stage;
  World& world = stage.world;
  const auto check = [&](Outcome) { stage.check_cycle(); };
  SECTION("peer access") {
    for_each_allocation([&] { return world.table.set_peer(DeviceId{0}, DeviceId{1}, true).has_value(); }, check);
  }
  SECTION("a dropped context takes its blocks although no memory is left") {
    const auto address = world.table.allocate(world.backend(), tag_name("lora"), ContextId{99}, 2_MiB);
    REQUIRE(address);
    bool failed = false;
    const auto outcome = attempt(1, true, failed, [&] {
      world.table.drop_context(ContextId{99});
      return true;
    });
    REQUIRE(outcome == Outcome::done);
    REQUIRE_FALSE(failed);
    REQUIRE_FALSE(world.table.find(*address));
    stage.check_cycle();
  }
  SECTION("reading a backup") {
    world.set_store("weights", GENERATE(Place::host, Place::disk));
    REQUIRE(world.pause());
    std::vector<std::uint8_t> bytes(1000);
    for_each_allocation(
        [&] {
          return world.table.read_backup({world.blocks[0].address, {1000}}, bytes.data()).has_value();
        },
        [&](Outcome) { REQUIRE(world.complaint() == ""); });
    REQUIRE(world.resume());
    world.write_unknown();
    stage.check_cycle();
  }
  SECTION("the status") {
    for_each_allocation([&] { return world.table.regions().size() >= 2; }, check);
  }
  SECTION("attaching a context") {
    const auto context = world.context(0);
    world.backend(0).detach(context);
    bool failed = false;
    REQUIRE(attempt(1, true, failed, [&] { return world.backend(0).attach(context).has_value(); }) == Outcome::done);
    REQUIRE_FALSE(failed);
  }
}

TEST_CASE("a wait for the device survives a failing operator new and can be repeated") {
  Drain drain;
  const auto wait = [&] {
    const auto soon = std::chrono::steady_clock::now() + std::chrono::seconds{60};
    return drain.wait([] { return Status{}; }, soon).has_value();
  };
  for_each_allocation(wait, [&](Outcome) {
    REQUIRE(wait());
    sigset_t masked;
    REQUIRE(pthread_sigmask(SIG_SETMASK, nullptr, &masked) == 0);
    REQUIRE(sigismember(&masked, SIGINT) == 0);
  });
}

// SPDX-License-Identifier: Apache-2.0
// Pause and resume as transactions: whatever driver calls fail, no byte is lost, the state is as before or as asked,
// the next try succeeds, and nothing leaks.
#include <span>

#include "tests/catch.hpp"
#include "tests/contract/fault_scenarios.hpp"
#include "tests/sanitized.hpp"

using namespace lowtide;
using namespace lowtide::test;

namespace {

/// Registrations aside: a slab that could not be registered is used all the same. So is a place that could not be kept
/// while its memory is freed.
Held for_certain(Held held, const BackendKind& kind) {
  held.registrations = 0;
  if (!kind.keeps_arenas) held.reservations = 0;
  return held;
}

class Stage {
 public:
  Stage(const FaultScenario& its_scenario, const BackendKind& its_kind)
      : scenario(its_scenario),
        kind(its_kind),
        driver(SimulatedDriver::instance().driver()),
        world(driver.table(), scenario.devices, scenario.backup, std::make_unique<DiskCalls>(), kind) {
    scenario.build(world);
    pause();  // what a first pause makes for later ones is there from now on
    parked = held_now();
    resume();
    resident = held_now();
  }

  void pause() {
    const auto report = world.pause();
    INFO((report ? "" : report.error().message()));
    REQUIRE(report);
    REQUIRE(world.wrongly_placed([&](const auto& block) { return world.is_to_be_parked(block); }) == "");
    REQUIRE(world.complaint() == "");
  }

  void resume() {
    const auto report = world.resume();
    INFO((report ? "" : report.error().message()));
    REQUIRE(report);
    REQUIRE(world.parked_blocks() == 0);
    REQUIRE(world.complaint() == "");
    REQUIRE(world.backup_bytes() == Bytes{});
    world.write_unknown();
  }

  void check_resident() {
    REQUIRE(for_certain(held_now(), kind) == for_certain(resident, kind));
    check_registrations();
  }

  void check_parked() {
    REQUIRE(for_certain(held_now(), kind) == for_certain(parked, kind));
    check_registrations();
  }

  // The store may keep host memory for the next pause; it knows of all that is registered.
  void check_registrations() {
    const Bytes kept = world.store.backup_bytes() + world.retained_bytes();
    REQUIRE(Slab::unit * held_now().registrations <= kept);
  }

  // A cycle in which nothing fails leaves what the first one left.
  void check_steady_state() {
    pause();
    REQUIRE(held_now() == parked);
    resume();
    REQUIRE(held_now() == resident);
  }

  FaultScenario scenario;
  const BackendKind& kind;
  FaultyDriver driver;
  World world;
  Held parked;
  Held resident;
};

/// An address that could not be reserved again is gone until it is free when the next resume asks for it.
bool may_be_moved(const Error& error, const BackendKind& kind) {
  return error.code() == Code::moved && !kind.keeps_arenas;
}

std::vector<DriverCall> pause_under(Stage& stage, const FaultyDriver::Plan& plan) {
  World& world = stage.world;
  stage.driver.start(plan);
  const auto report = world.pause();
  const auto calls = stage.driver.stop();
  INFO((report ? "the pause succeeded" : report.error().message()));
  REQUIRE(world.complaint() == "");
  if (report) {
    REQUIRE(world.wrongly_placed([&](const auto& block) { return world.is_to_be_parked(block); }) == "");
  } else {
    // The host has no memory for what stays readable: an ordinary answer.
    REQUIRE((report.error().code() == Code::driver || report.error().code() == Code::host_budget ||
             may_be_moved(report.error(), stage.kind)));
    if (!succeeded(calls, stage.kind.gives_back)) {
      REQUIRE(world.parked_blocks() == 0);
      REQUIRE(world.backup_bytes() == Bytes{});
    }
  }
  return calls;
}

std::vector<DriverCall> resume_under(Stage& stage, const FaultyDriver::Plan& plan) {
  World& world = stage.world;
  const Bytes backups = world.backup_bytes();
  stage.driver.start(plan);
  const auto report = world.resume();
  const auto calls = stage.driver.stop();
  INFO((report ? "the resume succeeded" : report.error().message()));
  REQUIRE(world.complaint() == "");
  if (report) {
    REQUIRE(world.parked_blocks() == 0);
    REQUIRE(world.backup_bytes() == Bytes{});
  } else {
    REQUIRE((report.error().code() == Code::driver || report.error().code() == Code::device_memory ||
             may_be_moved(report.error(), stage.kind)));
    REQUIRE(world.wrongly_placed([&](const auto& block) { return world.is_to_be_parked(block); }) == "");
    REQUIRE(world.backup_bytes() == backups);
  }
  return calls;
}

void check_nothing_left(const Held& before, const BackendKind& kind) {
  Held after = held_now();
  // Address space is kept: a tag's arena lives as long as the process.
  if (kind.keeps_arenas) after.reservations = before.reservations;
  after.contexts = before.contexts;
  REQUIRE(after == before);
}

/// A section for each kind, so that each can be a run of its own, and in it one for each scenario.
template <class Check>
void for_each_case(std::span<const FaultScenario> scenarios, Check check) {
  for (const BackendKind* kind : backend_kinds) {
    DYNAMIC_SECTION(kind->name) {
      for (const auto& scenario : scenarios) {
        DYNAMIC_SECTION(scenario.name) { check(scenario, *kind); }
      }
    }
  }
}

}  // namespace

TEST_CASE("a pause whose driver calls fail loses no byte and can be repeated") {
  for_each_case(fault_scenarios, [](const FaultScenario& scenario, const BackendKind& kind) {
    (void)SimulatedDriver::instance();
    const Held before = held_now();
    {
      Stage stage(scenario, kind);
      const auto runs = for_each_fault([&](const FaultyDriver::Plan& plan, const std::string& label) {
        INFO("failing: " << label);
        auto calls = pause_under(stage, plan);
        stage.pause();
        stage.check_parked();
        stage.resume();
        stage.check_resident();
        return calls;
      });
      CHECK(runs > 30 / fault_step);
      stage.check_steady_state();
    }
    check_nothing_left(before, kind);
  });
}

TEST_CASE("a resume whose driver calls fail changes nothing and can be repeated") {
  for_each_case(fault_scenarios, [](const FaultScenario& scenario, const BackendKind& kind) {
    (void)SimulatedDriver::instance();
    const Held before = held_now();
    {
      Stage stage(scenario, kind);
      const auto runs = for_each_fault([&](const FaultyDriver::Plan& plan, const std::string& label) {
        INFO("failing: " << label);
        stage.pause();
        auto calls = resume_under(stage, plan);
        stage.resume();
        stage.check_resident();
        return calls;
      });
      CHECK(runs > 30 / fault_step);
      stage.check_steady_state();
    }
    check_nothing_left(before, kind);
  });
}

TEST_CASE("after a resume that failed in its undo the next pause takes the memory back") {
  const std::span scenarios(fault_scenarios);
  for_each_case(scenarios.subspan(3, 3), [](const FaultScenario& scenario, const BackendKind& kind) {
    Stage stage(scenario, kind);
    for_each_fault([&](const FaultyDriver::Plan& plan, const std::string& label) {
      INFO("failing: " << label);
      stage.pause();
      auto calls = resume_under(stage, plan);
      stage.pause();
      stage.check_parked();
      stage.resume();
      return calls;
    });
  });
}

TEST_CASE("blocks of a resume that failed in its undo can be freed without a leak") {
  const FaultScenario scenarios[] = {fault_scenarios[0], fault_scenarios[3]};
  for_each_case(scenarios, [](const FaultScenario& scenario, const BackendKind& kind) {
    (void)SimulatedDriver::instance();
    const Held before = held_now();
    {
      Stage stage(scenario, kind);
      for_each_fault([&](const FaultyDriver::Plan& plan, const std::string& label) {
        INFO("failing: " << label);
        stage.pause();
        auto calls = resume_under(stage, plan);
        stage.world.free_all();
        REQUIRE(held_now().handles == before.handles);
        REQUIRE(held_now().mappings == before.mappings);
        REQUIRE(stage.world.backup_bytes() == Bytes{});
        stage.scenario.build(stage.world);
        return calls;
      });
    }
    check_nothing_left(before, kind);
  });
}

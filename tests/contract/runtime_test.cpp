// SPDX-License-Identifier: Apache-2.0
// The runtime that joins the layers: holds, captures, contexts that are hard to attach, a host without memory.
#include <atomic>
#include <future>
#include <thread>

#include "tests/catch.hpp"
#include "tests/contract/failing_new.hpp"
#include "tests/contract/fault_plans.hpp"
#include "tests/contract/runtime_world.hpp"

using namespace lowtide;
using namespace lowtide::test;
using namespace std::chrono_literals;

namespace {

const cuda::Driver& simulated() {
  static const cuda::Driver driver = sheltered_from_failing_new(SimulatedDriver::instance().driver());
  return driver;
}

/// A thread inside a gated call until it is told to leave.
class Visit {
 public:
  explicit Visit(Gate& gate)
      : thread_([this, &gate] {
          auto* const visitor = gate.add_visitor();
          (void)gate.enter(visitor);
          inside_.set_value();
          leave_.get_future().wait();
          gate.leave(visitor);
          Gate::remove_visitor(visitor);
        }) {
    inside_.get_future().wait();
  }
  Visit(const Visit&) = delete;
  Visit& operator=(const Visit&) = delete;
  ~Visit() { leave(); }
  void leave() {
    if (!thread_.joinable()) return;
    leave_.set_value();
    thread_.join();
  }

 private:
  std::promise<void> inside_;
  std::promise<void> leave_;
  std::thread thread_;
};

/// Stands still, at the first progress it is told, until it is told to go on.
class Standstill {
 public:
  ProgressSink sink() {
    return [this](const Progress& progress) {
      if (!std::exchange(stood_, true)) {
        reached_.set_value(progress);
        go_.get_future().wait();
      }
    };
  }
  /// Waits until it is reached; gives how the status shows that.
  std::string shown(const char* step) {
    const auto progress = reached_.get_future().get();
    return std::string("\"transition\":{\"step\":\"") + step + "\",\"done\":" + std::to_string(progress.done.value) +
           ",\"total\":" + std::to_string(progress.total.value) + "}";
  }
  void go() { go_.set_value(); }

 private:
  bool stood_ = false;
  std::promise<Progress> reached_;
  std::promise<void> go_;
};

bool status_has(RuntimeWorld& world, const std::string& part) {
  return world.runtime.status_json().find(part) != std::string::npos;
}

void wait_until(const std::function<bool()>& condition) {
  while (!condition()) std::this_thread::sleep_for(1ms);
}

}  // namespace

TEST_CASE("a hold closes the gate until what it parked is back") {
  RuntimeWorld world(simulated(), 1);
  const auto weights = world.add("weights", 3_MiB, 7);
  REQUIRE(world.hold("weights"));
  CHECK(world.runtime.gate().closed());
  CHECK(world.is_parked(weights));
  REQUIRE(world.runtime.resume(tag_name("weights")));
  CHECK_FALSE(world.runtime.gate().closed());
  CHECK(world.holds(weights, 3_MiB, 7));
}

TEST_CASE("the gate opens when the last held tag is back") {
  RuntimeWorld world(simulated(), 1);
  world.add("weights", 2_MiB, 1);
  world.add("lora", 2_MiB, 2);
  REQUIRE(world.hold("weights"));
  REQUIRE(world.hold("lora"));
  REQUIRE(world.runtime.resume(tag_name("weights")));
  CHECK(world.runtime.gate().closed());
  REQUIRE(world.runtime.resume(tag_name("lora")));
  CHECK_FALSE(world.runtime.gate().closed());
}

TEST_CASE("a hold of everything lasts until everything is back") {
  RuntimeWorld world(simulated(), 1);
  world.add("weights", 2_MiB, 1);
  world.add("lora", 2_MiB, 2);
  REQUIRE(world.runtime.pause(std::nullopt, true, 1min, {}, {}));
  REQUIRE(world.runtime.resume(tag_name("weights")));
  CHECK(world.runtime.gate().closed());
  CHECK(world.runtime.status_json().find("\"held_tags\":[\"lora\"]") != std::string::npos);
  REQUIRE(world.runtime.resume(std::nullopt));
  CHECK_FALSE(world.runtime.gate().closed());
}

TEST_CASE("a hold that finds nothing to park opens the gate again") {
  RuntimeWorld world(simulated(), 1);
  world.add("weights", 2_MiB, 1);
  REQUIRE(world.hold("kv_cache"));
  CHECK_FALSE(world.runtime.gate().closed());
}

TEST_CASE("a hold that is called off while a thread is inside a copy is undone") {
  RuntimeWorld world(simulated(), 1);
  const auto weights = world.add("weights", 2_MiB, 1);
  Visit visit(world.runtime.gate());
  std::atomic<bool> wanted{true};
  auto held = std::async(std::launch::async, [&] {
    return world.runtime.pause(tag_name("weights"), true, 1h, {}, [&] { return !wanted; });
  });
  wait_until([&] { return world.runtime.gate().closed(); });
  wanted = false;
  const auto report = held.get();
  REQUIRE_FALSE(report);
  CHECK(report.error().code() == Code::refused);
  CHECK(std::string(report.error().message()) == "the hold was called off; the process goes on as before");
  CHECK_FALSE(world.runtime.gate().closed());
  CHECK(world.runtime.status_json().find("\"held_tags\":[]") != std::string::npos);
  visit.leave();
  CHECK(world.holds(weights, 2_MiB, 1));
}

TEST_CASE("a hold that is called off while a capture is under way leaves the capture alone") {
  RuntimeWorld world(simulated(), 1);
  world.add("weights", 2_MiB, 1);
  const int stream = 0;
  world.runtime.captures().begin();
  world.runtime.captures().began(&stream, true);
  std::atomic<int> asked{0};
  CHECK_FALSE(world.runtime.pause(tag_name("weights"), true, 1h, {}, [&] { return ++asked > 2; }));
  CHECK(world.runtime.captures().active() == 1);
  CHECK_FALSE(world.runtime.gate().closed());
  world.runtime.capture_ended(&stream);
  REQUIRE(world.hold("weights"));
}

TEST_CASE("a resume of another tag while a hold comes to rest does not open the gate") {
  RuntimeWorld world(simulated(), 1);
  const auto weights = world.add("weights", 2_MiB, 1);
  world.add("lora", 2_MiB, 2);
  REQUIRE(world.runtime.pause(tag_name("lora")));
  Visit visit(world.runtime.gate());
  auto held = std::async(std::launch::async, [&] { return world.hold("weights").has_value(); });
  wait_until([&] { return world.runtime.gate().closed(); });
  REQUIRE(world.runtime.resume(tag_name("lora")));
  CHECK(world.runtime.gate().closed());
  visit.leave();
  REQUIRE(held.get());
  CHECK(world.runtime.gate().closed());
  CHECK(world.is_parked(weights));
  REQUIRE(world.runtime.resume(tag_name("weights")));
}

TEST_CASE("a hold that does not come to rest in time is undone and says so") {
  RuntimeWorld world(simulated(), 1);
  const auto weights = world.add("weights", 2_MiB, 1);
  Visit visit(world.runtime.gate());
  const auto report = world.hold("weights", 20ms);
  REQUIRE_FALSE(report);
  CHECK(report.error().code() == Code::busy);
  CHECK_FALSE(world.runtime.gate().closed());
  CHECK_FALSE(world.is_parked(weights));
  visit.leave();
  REQUIRE(world.hold("weights"));
  REQUIRE(world.runtime.resume(std::nullopt));
}

TEST_CASE("a pause during a capture is refused, and a free during one is carried out after it") {
  RuntimeWorld world(simulated(), 1);
  const auto weights = world.add("weights", 2_MiB, 1);
  const int stream = 0;
  const Held before = held_now();
  world.runtime.captures().begin();
  world.runtime.captures().began(&stream, true);
  const auto report = world.runtime.pause(tag_name("weights"));
  REQUIRE_FALSE(report);
  CHECK(report.error().code() == Code::refused);
  REQUIRE(world.runtime.blocks().free(weights) == BlockTable::Freed::done);
  CHECK(held_now() == before);
  CHECK_FALSE(world.runtime.blocks().find(weights));
  world.runtime.capture_ended(&stream);
  CHECK(held_now().handles == before.handles - 1);
}

TEST_CASE("of two transitions at once the status shows the one that runs, and that one to its end") {
  RuntimeWorld world(simulated(), 1);
  world.add("weights", 3_MiB, 1);
  world.add("lora", 2_MiB, 2);
  Standstill first;
  Standstill second;
  auto weights = std::async(std::launch::async, [&] {
    return world.runtime.pause(tag_name("weights"), false, {}, first.sink(), {}).has_value();
  });
  const auto of_weights = first.shown("pause");
  auto lora = std::async(std::launch::async, [&] {
    return world.runtime.pause(tag_name("lora"), true, 1min, second.sink(), {}).has_value();
  });
  wait_until([&] { return world.runtime.gate().closed(); });  // the second has begun
  CHECK(status_has(world, of_weights));
  first.go();
  CHECK(weights.get());
  const auto of_lora = second.shown("pause");
  CHECK(of_lora != of_weights);
  CHECK(status_has(world, of_lora));
  second.go();
  CHECK(lora.get());
  CHECK(status_has(world, "\"transition\":null"));

  Standstill third;
  auto resuming =
      std::async(std::launch::async, [&] { return world.runtime.resume(std::nullopt, third.sink()).has_value(); });
  CHECK(status_has(world, third.shown("resume")));
  third.go();
  CHECK(resuming.get());
  CHECK(status_has(world, "\"transition\":null"));
}

TEST_CASE("a transition that fails, or that never has its turn, is not left in the status") {
  RuntimeWorld world(simulated(), 1);
  world.add("weights", 2_MiB, 1);
  Visit visit(world.runtime.gate());
  CHECK_FALSE(world.hold("weights", 20ms));
  CHECK(status_has(world, "\"transition\":null"));
  const int stream = 0;
  world.runtime.captures().begin();
  world.runtime.captures().began(&stream, true);
  CHECK_FALSE(world.runtime.pause(tag_name("weights")));
  CHECK(status_has(world, "\"transition\":null"));
  world.runtime.capture_ended(&stream);
}

TEST_CASE("a context that could not be attached is attached at the next use") {
  FaultyDriver driver(simulated());
  for_each_fault([&](const FaultyDriver::Plan& plan, const std::string& label) {
    INFO("failing: " << label);
    RuntimeWorld world(driver.table(), 1);
    driver.start(plan);
    (void)world.attach();
    auto calls = driver.stop();
    const auto weights = world.add("weights", 2_MiB, 5);
    REQUIRE(world.runtime.pause(tag_name("weights")));
    REQUIRE(world.runtime.resume(tag_name("weights")));
    REQUIRE(world.holds(weights, 2_MiB, 5));
    return calls;
  });
}

TEST_CASE("a dead context beside it does not keep a context from being attached") {
  RuntimeWorld world(simulated(), 1);
  world.runtime.note_context(DeviceId{0}, ContextId{0x1234}, false);
  REQUIRE(world.attach());
  const auto weights = world.add("weights", 2_MiB, 5);
  CHECK(world.holds(weights, 2_MiB, 5));
}

TEST_CASE("with backup.verify a byte of the host's copy that changed by itself never reaches the program") {
  RuntimeWorld world(simulated(), 1);
  const auto weights = world.add("weights", 3_MiB, 5);
  REQUIRE(world.runtime.set("backup.verify", "true"));
  REQUIRE(world.runtime.pause(tag_name("weights")));
  const auto view = world.runtime.view_backup(weights + 2_MiB);
  REQUIRE(view);
  auto& byte = const_cast<std::byte&>(view->back());
  byte ^= std::byte{1};
  const auto resumed = world.runtime.resume(tag_name("weights"));
  REQUIRE_FALSE(resumed);
  CHECK(resumed.error().code() == Code::corrupt);
  CHECK(world.is_parked(weights));
  byte ^= std::byte{1};
  REQUIRE(world.runtime.resume(tag_name("weights")));
  CHECK(world.holds(weights, 3_MiB, 5));
}

TEST_CASE("a hold survives a failing operator new") {
  RuntimeWorld world(simulated(), 1);
  const auto weights = world.add("weights", 2_MiB, 9);
  for (const bool for_good : {false, true}) {
    bool failed = true;
    for (std::uint64_t nth = 1; failed; ++nth) {
      INFO("allocation " << nth << (for_good ? " and all later ones" : ""));
      {
        FailingNew failing(nth, for_good);
        try {
          (void)world.hold("weights");
        } catch (const std::bad_alloc&) {
        }
        failed = failing.failed();
      }
      // What is parked is held, and what is not is not: no kernel meets parked memory, no process waits for nothing.
      REQUIRE(world.runtime.gate().closed() == world.is_parked(weights));
      REQUIRE(world.hold("weights"));
      REQUIRE(world.runtime.gate().closed());
      REQUIRE(world.runtime.resume(tag_name("weights")));
      REQUIRE_FALSE(world.runtime.gate().closed());
      REQUIRE(world.holds(weights, 2_MiB, 9));
    }
  }
}

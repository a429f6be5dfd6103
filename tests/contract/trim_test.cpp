// SPDX-License-Identifier: Apache-2.0
// A trim: host memory goes back to the host, what is parked stays, and the next pause starts anew.
#include <algorithm>
#include <fstream>
#include <future>
#include <string>
#include <thread>

#include "tests/catch.hpp"
#include "tests/contract/faulty_driver.hpp"
#include "tests/contract/runtime_world.hpp"
#include "tests/contract/world.hpp"

using namespace lowtide;
using namespace lowtide::test;
using namespace std::chrono_literals;

namespace {

const cuda::Driver& simulated() { return SimulatedDriver::instance().driver(); }

/// Of this process: what it has of anonymous memory.
Bytes anonymous_memory() {
  std::ifstream file("/proc/self/status");
  for (std::string word; file >> word;) {
    std::uint64_t kib = 0;
    if (word == "RssAnon:" && file >> kib) return Bytes{kib * 1024};
  }
  return {};
}

std::size_t copies_out(const std::vector<DriverCall>& calls) {
  return static_cast<std::size_t>(std::count_if(calls.begin(), calls.end(), [](const DriverCall& call) {
    return std::string_view(call.name).starts_with("cuMemcpyDtoH");
  }));
}

std::size_t copies_out_of_a_pause(FaultyDriver& driver, World& world) {
  driver.start([](std::size_t, std::string_view) { return false; });
  const auto report = world.pause();
  const auto calls = driver.stop();
  REQUIRE(report);
  return copies_out(calls);
}

}  // namespace

TEST_CASE("a trim gives the host memory of resident blocks back to the host") {
  World world(simulated(), 1);
  world.add("weights", 96_MiB);
  world.add("lora", 5_MiB);
  const Held before = held_now();
  REQUIRE(world.pause());
  REQUIRE(world.resume());
  const Bytes kept = world.store.retained_bytes();
  REQUIRE(kept >= 101_MiB);
  REQUIRE(held_now().registrations > before.registrations);
  const Bytes resident = anonymous_memory();
  const auto report = world.transitions.trim();
  REQUIRE(report);
  CHECK(report->given_back == kept);
  CHECK(report->held == Bytes{});
  CHECK(world.store.retained_bytes() == Bytes{});
  CHECK(held_now().registrations == before.registrations);
  CHECK(anonymous_memory() + 95_MiB < resident);
  CHECK(world.complaint() == "");
}

TEST_CASE("the pause after a trim copies everything, although nothing changed, and every byte comes back") {
  FaultyDriver driver(simulated());
  World world(driver.table(), 1);
  for (const char* tag : {"weights", "lora", "cuda_graph"}) world.add(tag, 3_MiB);
  REQUIRE(world.pause());
  REQUIRE(world.resume());
  CHECK(copies_out_of_a_pause(driver, world) == 0);
  REQUIRE(world.resume());
  REQUIRE(world.transitions.trim());
  CHECK(copies_out_of_a_pause(driver, world) >= 3);
  CHECK(world.complaint() == "");
  REQUIRE(world.resume());
  CHECK(world.complaint() == "");
}

TEST_CASE("a trim leaves the backups of parked blocks alone") {
  World world(simulated(), 1);
  world.add("weights", 70_MiB);
  world.add("lora", 70_MiB);
  REQUIRE(world.pause());
  REQUIRE(world.resume(tag_name("weights")));
  const auto report = world.transitions.trim();
  REQUIRE(report);
  // The two share a slab, which stays.
  CHECK(report->given_back > Bytes{});
  CHECK(report->held >= 70_MiB);
  CHECK(report->held < 140_MiB);
  CHECK(report->held == world.store.backup_bytes() + world.store.retained_bytes());
  CHECK(world.parked_blocks() == 1);
  CHECK(world.complaint() == "");
  REQUIRE(world.resume());
  CHECK(world.complaint() == "");
}

TEST_CASE("a trim of nothing gives nothing back, however often it is asked for") {
  World world(simulated(), 1);
  world.add("weights", 2_MiB);
  for (int i = 0; i < 2; ++i) {
    const auto report = world.transitions.trim();
    REQUIRE(report);
    CHECK(report->given_back == Bytes{});
    CHECK(report->held == Bytes{});
  }
}

TEST_CASE("a trim waits for the pause that runs, and finds what is parked by then") {
  World world(simulated(), 1);
  world.add("weights", 4_MiB);
  std::future<Result<TrimReport>> trim;
  bool waited = true;
  const auto report = world.transitions.pause({}, world.settings, [&](const Progress&) {
    if (!trim.valid()) trim = std::async(std::launch::async, [&] { return world.transitions.trim(); });
    waited = waited && trim.wait_for(20ms) == std::future_status::timeout;
  });
  REQUIRE(report);
  REQUIRE(trim.valid());
  const auto trimmed = trim.get();
  CHECK(waited);
  REQUIRE(trimmed);
  CHECK(trimmed->given_back == Bytes{});
  CHECK(trimmed->held >= 4_MiB);
  CHECK(world.complaint() == "");
  REQUIRE(world.resume());
  CHECK(world.complaint() == "");
}

TEST_CASE("a trim during a stream capture is refused, and one of an ending process too") {
  RuntimeWorld world(simulated(), 1);
  const auto weights = world.add("weights", 2_MiB, 3);
  REQUIRE(world.runtime.pause(tag_name("weights")));
  REQUIRE(world.runtime.resume(tag_name("weights")));
  const int stream = 0;
  world.runtime.captures().begin();
  world.runtime.captures().began(&stream, true);
  const auto refused = world.runtime.trim();
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code() == Code::refused);
  world.runtime.capture_ended(&stream);
  const auto report = world.runtime.trim();
  REQUIRE(report);
  CHECK(report->given_back == 2_MiB);
  CHECK(world.holds(weights, 2_MiB, 3));
  world.runtime.leave_for_exit();
  REQUIRE_FALSE(world.runtime.trim());
  CHECK(world.runtime.trim().error().code() == Code::busy);
}

TEST_CASE("what was kept for the next pause goes back when it is said that nothing is to be kept") {
  RuntimeWorld world(simulated(), 1);
  world.add("weights", 40_MiB, 1);
  REQUIRE(world.runtime.pause(std::nullopt));
  REQUIRE(world.runtime.resume(std::nullopt));
  const auto registered = held_now().registrations;
  REQUIRE(registered > 0);
  REQUIRE(world.runtime.set("host.retain", "none"));
  CHECK(held_now().registrations == 0);
}

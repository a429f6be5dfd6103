// SPDX-License-Identifier: Apache-2.0
// A learning under every failing driver call: whatever fails, and whatever is then tried again, no byte is lost.
#include "tests/contract/fault_plans.hpp"
#include "tests/contract/updates_world.hpp"
#include "tests/sanitized.hpp"

using namespace lowtide;
using namespace lowtide::test;

namespace {

/// Two blocks, of which an update writes all of one and a part of the other.
struct Stage {
  explicit Stage(const BackendKind& kind)
      : driver(SimulatedDriver::instance().driver()), updates(kind, driver.table()) {
    updates.settings().coverage = Coverage::learn;
    updates.settings().pause = Action::discard;
    updates.add(2_MiB);
    updates.add(Bytes{70'001});
  }
  void write(std::size_t index, Bytes size) {
    auto& block = updates.world.blocks[index];
    for (std::uint64_t i = 0; i < size.value; ++i) block.bytes[i] = static_cast<std::uint8_t>(i * 7 + version);
    REQUIRE(updates.world.backend().copy_in({block.address, size}, block.bytes.data()));
    REQUIRE(updates.world.backend().finish_copies());
  }
  /// Repeats `call` without faults until it succeeds; an address may be somebody else's for a while.
  template <class Call>
  void finish(Call call) {
    for (int i = 0; i < 10; ++i) {
      if (call()) return;
    }
    FAIL("it does not succeed without faults");
  }
  void cycle(const std::function<bool(const char* step, const std::function<bool()>&)>& run) {
    ++version;
    run("pause", [&] { return updates.pause(Action::discard).has_value(); });
    run("resume", [&] { return updates.resume().has_value(); });
    REQUIRE(updates.begin(version));
    write(0, updates.world.blocks[0].size);
    write(1, Bytes{4096});
    run("commit", [&] { return updates.commit(version).has_value(); });
    for (auto& block : updates.world.blocks) block.known = true;
    REQUIRE(updates.world.complaint() == "");
    REQUIRE(updates.state() == "valid v" + std::to_string(version));
    REQUIRE(updates.world.backup_bytes() == Bytes{});
  }
  FaultyDriver driver;
  UpdatesWorld updates;
  std::uint64_t version = 0;
};

void check_faults_of(const char* faulty_step, const BackendKind& kind) {
  Stage stage(kind);
  const auto run = [&](const FaultyDriver::Plan& plan, const std::string& label) {
    INFO(kind.name << ": the " << faulty_step << " fails at " << label);
    std::vector<DriverCall> calls;
    stage.cycle([&](const char* step, const std::function<bool()>& call) {
      if (std::string_view(step) == faulty_step) {
        stage.driver.start(plan);
        const bool done = call();
        calls = stage.driver.stop();
        if (done) return true;
      }
      stage.finish(call);
      return true;
    });
    return calls;
  };
  CHECK(for_each_fault(run) > 4 / fault_step);
}

}  // namespace

TEST_CASE("no byte is lost when a pause fails that holds copies back") {
  for (const auto* kind : backend_kinds) check_faults_of("pause", *kind);
}

TEST_CASE("no byte is lost when a resume fails that fills stale memory") {
  for (const auto* kind : backend_kinds) check_faults_of("resume", *kind);
}

TEST_CASE("no byte is lost when a commit fails that looks for what was not written") {
  for (const auto* kind : backend_kinds) check_faults_of("commit", *kind);
}

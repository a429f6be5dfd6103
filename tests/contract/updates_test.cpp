// SPDX-License-Identifier: Apache-2.0
// Every call of an update, in every state that a tag can be in: what it answers, and what the tag is then.
#include "tests/contract/updates_world.hpp"

using namespace lowtide;
using namespace lowtide::test;

namespace {

enum class State { valid, stale, syncing, backed, discarded, syncing_backed };
enum class Call {
  begin,
  begin_other,
  commit,
  commit_other,
  abort,
  mark_valid,
  mark_valid_other,
  drop_backup,
  pause,
  resume
};

/// Version 1 is what every state comes from, and 2 what its calls name unless they are `other`.
struct Stage {
  explicit Stage(State state) {
    block = &stage.add(3_MiB);
    stage.add(Bytes{5000});
    REQUIRE(stage.begin(1));
    REQUIRE(stage.commit(1));
    stage.settings().pause = Action::discard;
    if (state == State::stale || state == State::discarded) REQUIRE(stage.pause(Action::discard));
    if (state == State::stale) REQUIRE(stage.resume());
    if (state == State::backed || state == State::syncing_backed) REQUIRE(stage.pause(Action::offload));
    if (state == State::syncing || state == State::syncing_backed) REQUIRE(stage.begin(2));
  }
  Status make(Call call) {
    const auto without_report = [](const Result<TransitionReport>& report) {
      return report ? Status() : fail(report.error());
    };
    switch (call) {
      case Call::begin: return stage.begin(2);
      case Call::begin_other: return stage.begin(3);
      case Call::commit: return stage.commit(2);
      case Call::commit_other: return stage.commit(3);
      case Call::abort: return stage.abort();
      case Call::mark_valid: return stage.mark_valid(1);
      case Call::mark_valid_other: return stage.mark_valid(3);
      case Call::drop_backup: return stage.drop_backup();
      case Call::pause: return without_report(stage.pause(Action::offload));
      case Call::resume: return without_report(stage.resume());
    }
    return {};
  }
  UpdatesWorld stage;
  World::KnownBlock* block = nullptr;
};

struct Case {
  State from;
  Call call;
  bool allowed;
  const char* to;
  std::uint64_t repeated = 0;
};

// In the order of the calls; what is refused leaves the state as it is.
constexpr Case cases[] = {
    {State::valid, Call::begin, true, "syncing v1"},
    {State::valid, Call::commit, false, "valid v1"},
    {State::valid, Call::abort, true, "valid v1", 1},
    {State::valid, Call::mark_valid, true, "valid v1", 1},
    {State::valid, Call::mark_valid_other, false, "valid v1"},
    {State::valid, Call::drop_backup, false, "valid v1"},
    {State::valid, Call::pause, true, "valid backed v1"},
    {State::valid, Call::resume, true, "valid v1"},
    {State::stale, Call::begin, true, "syncing v1"},
    {State::stale, Call::commit, false, "stale v1"},
    {State::stale, Call::abort, true, "stale v1", 1},
    {State::stale, Call::mark_valid, true, "valid v1"},
    {State::stale, Call::mark_valid_other, true, "valid v3"},
    {State::stale, Call::drop_backup, false, "stale v1"},
    {State::stale, Call::pause, true, "stale parked v1"},
    {State::stale, Call::resume, true, "stale v1"},
    {State::syncing, Call::begin, true, "syncing v1", 1},
    {State::syncing, Call::begin_other, false, "syncing v1"},
    {State::syncing, Call::commit, true, "valid v2"},
    {State::syncing, Call::commit_other, false, "syncing v1"},
    {State::syncing, Call::abort, true, "stale v1"},
    {State::syncing, Call::mark_valid, false, "syncing v1"},
    {State::syncing, Call::drop_backup, false, "syncing v1"},
    {State::syncing, Call::pause, false, "syncing v1"},
    {State::syncing, Call::resume, true, "syncing v1"},
    {State::backed, Call::begin, true, "syncing backed v1"},
    {State::backed, Call::commit, false, "valid backed v1"},
    {State::backed, Call::abort, true, "valid backed v1", 1},
    {State::backed, Call::mark_valid, true, "valid backed v1", 1},
    {State::backed, Call::mark_valid_other, false, "valid backed v1"},
    {State::backed, Call::drop_backup, true, "stale parked v1"},
    {State::backed, Call::pause, true, "valid backed v1"},
    {State::backed, Call::resume, true, "valid v1"},
    {State::discarded, Call::begin, false, "stale parked v1"},
    {State::discarded, Call::commit, false, "stale parked v1"},
    {State::discarded, Call::abort, true, "stale parked v1", 1},
    {State::discarded, Call::mark_valid, false, "stale parked v1"},
    {State::discarded, Call::mark_valid_other, false, "stale parked v1"},
    {State::discarded, Call::drop_backup, true, "stale parked v1", 1},
    {State::discarded, Call::pause, true, "stale parked v1"},
    {State::discarded, Call::resume, true, "stale v1"},
    {State::syncing_backed, Call::begin, true, "syncing backed v1", 1},
    {State::syncing_backed, Call::begin_other, false, "syncing backed v1"},
    {State::syncing_backed, Call::commit, false, "syncing backed v1"},
    {State::syncing_backed, Call::abort, true, "valid backed v1"},
    {State::syncing_backed, Call::mark_valid, false, "syncing backed v1"},
    {State::syncing_backed, Call::drop_backup, false, "syncing backed v1"},
    {State::syncing_backed, Call::resume, false, "syncing backed v1"},
};

}  // namespace

TEST_CASE(
    "a call that a tag's state does not allow is refused and changes nothing, and every other does what it says") {
  for (const Case& each : cases) {
    CAPTURE(static_cast<int>(each.from), static_cast<int>(each.call));
    Stage stage(each.from);
    const auto before = stage.stage.state();
    const auto status = stage.make(each.call);
    INFO((status ? "" : status.error().message()));
    CHECK(status.has_value() == each.allowed);
    if (!status) CHECK(status.error().code() == Code::refused);
    if (!each.allowed) CHECK(stage.stage.state() == before);
    CHECK(stage.stage.state() == each.to);
    CHECK(stage.stage.updates().repeated == each.repeated);
  }
}

TEST_CASE("a commit that comes twice is counted, and one of an older version is refused") {
  UpdatesWorld stage;
  stage.add(2_MiB);
  REQUIRE(stage.begin(7));
  REQUIRE(stage.commit(7));
  CHECK(stage.commit(7));
  CHECK(stage.updates().repeated == 1);
  CHECK(stage.updates().committed == 1);
  const auto older = stage.commit(6);
  REQUIRE_FALSE(older);
  CHECK(std::string(older.error().message()).find("version 7") != std::string::npos);
}

TEST_CASE("a tag's version outlives its blocks") {
  UpdatesWorld stage;
  auto& block = stage.add(2_MiB);
  REQUIRE(stage.begin(41));
  REQUIRE(stage.commit(41));
  REQUIRE(stage.world.table.free(block.address));
  block.live = false;
  CHECK(stage.updates().version == 41);
  stage.add(2_MiB);
  CHECK(stage.state() == "valid v41");
}

TEST_CASE("a block that is allocated during an update belongs to it") {
  UpdatesWorld stage;
  stage.add(2_MiB);
  REQUIRE(stage.begin(1));
  auto& late = stage.add(3_MiB);
  CHECK(stage.freshness(late) == Freshness::syncing);
  SECTION("commit") {
    REQUIRE(stage.commit(1));
    CHECK(stage.freshness(late) == Freshness::valid);
  }
  SECTION("abort") {
    REQUIRE(stage.abort());
    CHECK(stage.freshness(late) == Freshness::stale);
  }
}

TEST_CASE("an update of parked memory is committed once all of it was written, and comes back as written") {
  UpdatesWorld stage;
  auto& first = stage.add(3_MiB);
  auto& second = stage.add(Bytes{5001});
  REQUIRE(stage.pause(Action::offload));
  REQUIRE(stage.begin(2));
  stage.refill(first);
  const auto too_early = stage.commit(2);
  REQUIRE_FALSE(too_early);
  CHECK(too_early.error().code() == Code::refused);
  CHECK(std::string(too_early.error().message()).find("0 of 5001 bytes") != std::string::npos);
  CHECK(stage.state() == "syncing backed v0");
  for (std::size_t i = 0; i < second.bytes.size(); ++i) second.bytes[i] = static_cast<std::uint8_t>(i);
  const AddressRange whole = second.range();
  REQUIRE(stage.world.table.write_backup({whole.start + Bytes{2000}, Bytes{3001}}, &second.bytes[2000]));
  CHECK_FALSE(stage.commit(2));
  REQUIRE(stage.world.table.write_backup({whole.start, Bytes{2001}}, second.bytes.data()));
  REQUIRE(stage.commit(2));
  REQUIRE(stage.resume());
  CHECK(stage.state() == "valid v2");
  CHECK(stage.world.complaint() == "");
}

TEST_CASE("an aborted update leaves the parked blocks valid that it had not touched") {
  UpdatesWorld stage;
  auto& touched = stage.add(3_MiB);
  auto& untouched = stage.add(3_MiB);
  REQUIRE(stage.pause(Action::offload));
  REQUIRE(stage.begin(2));
  REQUIRE(stage.world.table.write_backup({touched.address, Bytes{1}}, touched.bytes.data()));
  REQUIRE(stage.abort());
  CHECK(stage.freshness(touched) == Freshness::stale);
  CHECK(stage.freshness(untouched) == Freshness::valid);
  // Nor does another one that writes nothing make it valid.
  REQUIRE(stage.begin(3));
  REQUIRE(stage.abort());
  CHECK(stage.freshness(touched) == Freshness::stale);
  // Writing all of its backup refills it.
  stage.refill(touched);
  CHECK(stage.freshness(touched) == Freshness::valid);
  REQUIRE(stage.resume());
  CHECK(stage.world.complaint() == "");
}

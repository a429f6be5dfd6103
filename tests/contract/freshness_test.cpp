// SPDX-License-Identifier: Apache-2.0
// Whether a block holds what its owner put there, through pauses and resumes.
#include "tests/contract/updates_world.hpp"

using namespace lowtide;
using namespace lowtide::test;

TEST_CASE("a discarded block comes back stale, unless its content is scratch") {
  for (const auto content : {Content::persistent, Content::scratch}) {
    for (const auto* kind : backend_kinds) {
      CAPTURE(kind->name, to_text(content));
      UpdatesWorld stage(*kind);
      stage.settings().content = content;
      stage.add(3_MiB);
      stage.add(Bytes{700});
      const auto paused = stage.pause(Action::discard);
      REQUIRE(paused);
      CHECK(paused->discarded == 3_MiB + Bytes{700});
      REQUIRE(stage.resume());
      CHECK(stage.state() == (content == Content::persistent ? "stale v0" : "valid v0"));
    }
  }
}

TEST_CASE("what a scope of another interface discards is scratch: its owner knows of no update") {
  UpdatesWorld stage;
  const Label label{stage.weights, Treatment{Action::discard, Place::host}};
  const auto address = stage.world.table.allocate(stage.world.backend(), label, stage.world.context(), 2_MiB);
  REQUIRE(address);
  REQUIRE(stage.world.pause());
  REQUIRE(stage.world.resume());
  CHECK(stage.state() == "valid v0");
  REQUIRE(stage.world.table.free(*address));
}

TEST_CASE("garbage is not backed up: a stale block keeps no copy and stays stale") {
  UpdatesWorld stage;
  stage.settings().initial = Freshness::stale;
  auto& dummy = stage.add(3_MiB, Freshness::stale);
  auto& real = stage.add(3_MiB);
  const auto paused = stage.pause(Action::offload);
  REQUIRE(paused);
  CHECK(paused->parked == 3_MiB);
  CHECK(paused->discarded == 3_MiB);
  CHECK(stage.world.backup_bytes() == 3_MiB);
  std::uint8_t byte = 0;
  CHECK_FALSE(stage.world.table.read_backup({dummy.address, Bytes{1}}, &byte));
  dummy.known = false;
  const auto back = stage.resume();
  REQUIRE(back);
  CHECK(back->parked == 3_MiB);
  CHECK(back->discarded == 3_MiB);
  CHECK(stage.freshness(dummy) == Freshness::stale);
  CHECK(stage.freshness(real) == Freshness::valid);
  CHECK(stage.world.complaint() == "");
}

TEST_CASE("a stale block beside valid ones in the same memory is left out of their copy") {
  UpdatesWorld stage;
  stage.settings().initial = Freshness::stale;
  std::vector<World::KnownBlock*> blocks;
  for (int i = 0; i < 6; ++i)
    blocks.push_back(&stage.add(Bytes{3000}, i % 2 == 0 ? Freshness::valid : Freshness::stale));
  const auto paused = stage.pause(Action::offload);
  REQUIRE(paused);
  CHECK(paused->parked == Bytes{9000});
  CHECK(paused->discarded == Bytes{9000});
  for (int i = 1; i < 6; i += 2) blocks[static_cast<std::size_t>(i)]->known = false;
  CHECK(stage.world.complaint() == "");
  REQUIRE(stage.resume());
  CHECK(stage.world.complaint() == "");
  for (std::size_t i = 0; i < 6; ++i)
    CHECK(stage.freshness(*blocks[i]) == (i % 2 == 0 ? Freshness::valid : Freshness::stale));
}

TEST_CASE("an owner who knows of no update, discards, writes anew and then offloads loses nothing") {
  const auto coverage = GENERATE(Coverage::off, Coverage::enforce, Coverage::learn);
  UpdatesWorld stage;
  stage.settings().coverage = coverage;
  stage.add(3_MiB);
  REQUIRE(stage.pause(Action::discard));
  REQUIRE(stage.resume());
  stage.world.write_unknown();
  const auto paused = stage.pause(Action::offload);
  REQUIRE(paused);
  CHECK(paused->parked == 3_MiB);
  CHECK(stage.world.complaint() == "");
  REQUIRE(stage.resume());
  CHECK(stage.world.complaint() == "");
}

TEST_CASE("an offload after an update that was aborted keeps no copy of what it left") {
  UpdatesWorld stage;
  auto& block = stage.add(3_MiB);
  REQUIRE(stage.begin(1));
  REQUIRE(stage.abort());
  const auto paused = stage.pause(Action::offload);
  REQUIRE(paused);
  CHECK(paused->parked == Bytes{0});
  CHECK(stage.world.backup_bytes() == Bytes{0});
  block.known = false;
  REQUIRE(stage.resume());
  CHECK(stage.state() == "stale v0");
}

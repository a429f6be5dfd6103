// SPDX-License-Identifier: Apache-2.0
// Whether an update wrote all that came back stale, and what becomes of the rest.
#include "allocator/base/blank.hpp"
#include "tests/contract/updates_world.hpp"

using namespace lowtide;
using namespace lowtide::test;
using Catch::Matchers::Contains;

namespace {

struct Stage : UpdatesWorld {
  Stage(const BackendKind& kind, Coverage coverage) : UpdatesWorld(kind) { settings().coverage = coverage; }

  /// Writes new bytes to [offset, offset + size) of a resident block.
  void write(World::KnownBlock& block, Bytes offset, Bytes size) {
    if (size.value == 0) return;
    for (std::uint64_t i = 0; i < size.value; ++i)
      block.bytes[offset.value + i] = static_cast<std::uint8_t>((offset.value + i) * 13 + version * 5 + 1);
    block.known = true;
    REQUIRE(world.backend().copy_in({block.address + offset, size}, &block.bytes[offset.value]));
    REQUIRE(world.backend().finish_copies());
  }
  void write(World::KnownBlock& block) { write(block, {}, block.size); }
  void discard_and_resume() {
    REQUIRE(pause(Action::discard));
    REQUIRE(resume());
    REQUIRE(state().substr(0, 6) == "stale ");
  }
  Status update() { return (++version, begin(version)); }
  /// Writes what a block that nobody wrote holds there, which a program may do by chance.
  void write_pattern(World::KnownBlock& block, Bytes offset, Bytes size) {
    if (size.value == 0) return;
    std::vector<std::uint8_t> pattern(block.size.value);
    fill_blank(pattern.data(), pattern.size(), block.address.value);
    std::copy_n(pattern.begin() + static_cast<std::ptrdiff_t>(offset.value), size.value,
                block.bytes.begin() + static_cast<std::ptrdiff_t>(offset.value));
    REQUIRE(world.backend().copy_in({block.address + offset, size}, &block.bytes[offset.value]));
    REQUIRE(world.backend().finish_copies());
  }
  Bytes residue() const { return world.table.regions().front().residue; }
  /// The bytes of blocks that were discarded are what the test says they are.
  std::string complaint() {
    for (auto& block : world.blocks) block.known = true;
    return world.complaint();
  }
  std::uint64_t version = 0;
};

void for_each_kind(Coverage coverage, const std::function<void(Stage&)>& check) {
  for (const auto* kind : backend_kinds) {
    INFO(kind->name);
    Stage stage(*kind, coverage);
    check(stage);
  }
}

}  // namespace

TEST_CASE("an update that leaves something out is refused, and the error names the block and the bytes") {
  for_each_kind(Coverage::enforce, [](Stage& stage) {
    auto& written = stage.add(5_MiB);
    auto& left_out = stage.add(3_MiB + Bytes{5});
    stage.discard_and_resume();
    REQUIRE(stage.update());
    stage.write(written);
    stage.write(left_out, {}, 1_MiB);
    stage.write(left_out, 1_MiB + Bytes{4096}, left_out.size - 1_MiB - Bytes{4096});
    const auto refused = stage.commit(stage.version);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().code() == Code::refused);
    CHECK_THAT(refused.error().message(), Contains("4096 bytes in 1 part,"));
    CHECK_THAT(refused.error().message(), Contains("byte 1048576 of a block of 3.00 MiB"));
    CHECK(stage.state() == "stale v0");
    CHECK(stage.updates().refused == 1);
    REQUIRE(stage.update());
    stage.write(left_out, 1_MiB, Bytes{4096});
    REQUIRE(stage.commit(stage.version));
    CHECK(stage.state() == "valid v2");
    CHECK(stage.complaint() == "");
  });
}

TEST_CASE("one word that was left out is found, and so are blocks of any size that nobody wrote") {
  for_each_kind(Coverage::enforce, [](Stage& stage) {
    for (const std::uint64_t size : {3ull, 8ull, 1001ull, (2ull << 20) + 3, (4ull << 20) + 9}) stage.add(Bytes{size});
    for (std::size_t missing = 0; missing < stage.world.blocks.size(); ++missing) {
      stage.discard_and_resume();
      REQUIRE(stage.update());
      for (auto& block : stage.world.blocks) {
        if (&block != &stage.world.blocks[missing]) stage.write(block);
      }
      const auto refused = stage.commit(stage.version);
      REQUIRE_FALSE(refused);
      CHECK_THAT(refused.error().message(),
                 Contains(std::to_string(stage.world.blocks[missing].size.value) + " bytes in 1 part,"));
    }
    stage.discard_and_resume();
    REQUIRE(stage.update());
    for (auto& block : stage.world.blocks) stage.write(block);
    auto& large = stage.world.blocks.back();
    const AddressRange word{large.address + 2_MiB, Bytes{8}};
    const auto pattern = blank_word(word.start.value);
    REQUIRE(stage.world.backend().copy_in(word, &pattern));
    REQUIRE(stage.world.backend().finish_copies());
    CHECK_FALSE(stage.commit(stage.version));
  });
}

TEST_CASE("only what this resume brought back is looked at") {
  for_each_kind(Coverage::enforce, [](Stage& stage) {
    stage.add(3_MiB);
    REQUIRE(stage.update());
    CHECK(stage.commit(1));  // nothing was filled: its owner wrote it before
    stage.discard_and_resume();
    auto& late = stage.add(2_MiB);
    REQUIRE(stage.update());
    stage.write(stage.world.blocks.front());
    CHECK(stage.commit(2));
    CHECK(stage.freshness(late) == Freshness::valid);
    CHECK(stage.complaint() == "");
  });
}

TEST_CASE("with warn an update that leaves something out is committed, and with off nothing is filled") {
  for (const auto coverage : {Coverage::warn, Coverage::off}) {
    for_each_kind(coverage, [](Stage& stage) {
      stage.add(3_MiB);
      stage.discard_and_resume();
      REQUIRE(stage.update());
      CHECK(stage.commit(1));
      CHECK(stage.state() == "valid v1");
    });
  }
}

TEST_CASE("scratch is not filled: its owner never says that it is valid") {
  for_each_kind(Coverage::enforce, [](Stage& stage) {
    stage.settings().content = Content::scratch;
    stage.settings().fill = Fill::zero;
    auto& block = stage.add(3_MiB);
    REQUIRE(stage.pause(Action::discard));
    REQUIRE(stage.resume());
    block.bytes.assign(block.size.value, 0);
    CHECK(stage.complaint() == "");
  });
}

TEST_CASE("what no update writes is put back as it was, and from then on only that is kept") {
  for_each_kind(Coverage::learn, [](Stage& stage) {
    auto& mixed = stage.add(5_MiB);
    auto& frozen = stage.add(Bytes{70'001});
    auto& written = stage.add(3_MiB);
    const Bytes rotary = 100_KiB;
    const auto cycle = [&] {
      stage.discard_and_resume();
      REQUIRE(stage.update());
      stage.write(written);
      stage.write(mixed, {}, 2_MiB);
      stage.write(mixed, 2_MiB + rotary, 3_MiB - rotary);
      REQUIRE(stage.commit(stage.version));
      CHECK(stage.complaint() == "");
      CHECK(stage.residue() == rotary + frozen.size);
      CHECK(stage.world.backup_bytes() == Bytes{0});
    };
    REQUIRE(stage.pause(Action::discard));
    CHECK(stage.world.backup_bytes() >= 8_MiB + frozen.size);
    REQUIRE(stage.resume());
    REQUIRE(stage.abort());
    cycle();
    for (int i = 0; i < 2; ++i) {
      const auto paused = stage.pause(Action::discard);
      REQUIRE(paused);
      CHECK(paused->discarded == 8_MiB + frozen.size);
      CHECK(stage.world.backup_bytes() == rotary + frozen.size);
      REQUIRE(stage.resume());
      cycle();
    }
  });
}

TEST_CASE(
    "the last bytes of a block of broken words are those of before or the new ones, also where they are its pattern") {
  const auto play = [](Stage& stage, const char* what) {
    INFO(what);
    const std::string_view written = what;
    stage.discard_and_resume();
    REQUIRE(stage.update());
    for (auto& block : stage.world.blocks) {
      const Bytes words{block.size.value - block.size.value % blank_unit};
      if (written.find("words") != written.npos) stage.write(block, {}, words);
      if (written.find("rest") != written.npos) stage.write(block, words, block.size - words);
      if (written.find("pattern") != written.npos) stage.write_pattern(block, words, block.size - words);
    }
    REQUIRE(stage.commit(stage.version));
    CHECK(stage.complaint() == "");
    CHECK(stage.world.backup_bytes() == Bytes{0});
  };
  const auto each_size = [](Stage& stage) {
    for (const std::uint64_t size : {1ull, 7ull, 8ull, 9ull, 1001ull, (2ull << 20) + 3}) stage.add(Bytes{size});
  };
  for_each_kind(Coverage::learn, [&](Stage& stage) {
    each_size(stage);
    for (const char* what : {"nothing", "words and rest", "words", "rest", "pattern", "nothing", "words and pattern"})
      play(stage, what);
  });
  for_each_kind(Coverage::learn, [&](Stage& stage) {
    each_size(stage);
    for (const char* what : {"words", "words and rest", "words", "words and pattern", "words"}) play(stage, what);
    CHECK(stage.residue() == Bytes{1 + 7 + 1 + 1 + 3});
  });
}

TEST_CASE("what is held back survives an abort, another pause and an update that is refused") {
  for_each_kind(Coverage::learn, [](Stage& stage) {
    auto& block = stage.add(4_MiB);
    stage.discard_and_resume();
    REQUIRE(stage.update());
    stage.write(block, {}, 1_MiB);
    REQUIRE(stage.abort());
    CHECK(stage.state() == "stale v0");
    stage.discard_and_resume();  // garbage is not kept, the copy of before is
    REQUIRE(stage.update());
    stage.write(block, {}, 2_MiB);
    REQUIRE(stage.commit(stage.version));
    CHECK(stage.complaint() == "");
    CHECK(stage.residue() == 2_MiB);
    // What was written so far and is not this time was not held back.
    stage.discard_and_resume();
    REQUIRE(stage.update());
    stage.write(block, {}, 1_MiB);
    CHECK_FALSE(stage.commit(stage.version));
    REQUIRE(stage.update());
    stage.write(block, 1_MiB, 1_MiB);
    REQUIRE(stage.commit(stage.version));
    CHECK(stage.complaint() == "");
  });
}

TEST_CASE("a learning goes on over blocks that are freed and blocks that are new") {
  for_each_kind(Coverage::learn, [](Stage& stage) {
    auto& kept = stage.add(Bytes{300'000});
    auto& freed = stage.add(Bytes{200'000});
    auto& last = stage.add(Bytes{100'000});
    REQUIRE(stage.pause(Action::discard));
    REQUIRE(stage.world.table.free(freed.address));
    freed.live = false;
    REQUIRE(stage.resume());
    auto& late = stage.add(Bytes{150'000});
    stage.discard_and_resume();
    REQUIRE(stage.update());
    stage.write(kept, {}, Bytes{4096});
    REQUIRE(stage.commit(stage.version));
    CHECK(stage.complaint() == "");
    CHECK(stage.freshness(late) == Freshness::valid);
    CHECK(stage.residue() >= Bytes{300'000 - 4096 + 100'000});
    stage.discard_and_resume();
    REQUIRE(stage.update());
    stage.write(kept, {}, Bytes{4096});
    stage.write(last, {}, Bytes{8});
    REQUIRE(stage.commit(stage.version));
    CHECK(stage.complaint() == "");
  });
}

TEST_CASE("a block that is new beside one that waits for its update comes back as it was") {
  for_each_kind(Coverage::learn, [](Stage& stage) {
    auto& waiting = stage.add(Bytes{40'000});
    stage.discard_and_resume();
    auto& late = stage.add(Bytes{30'000});
    REQUIRE(stage.pause(Action::discard));
    REQUIRE(stage.resume());
    CHECK(stage.freshness(waiting) == Freshness::stale);
    stage.discard_and_resume();
    REQUIRE(stage.update());
    stage.write(waiting, {}, Bytes{8});
    if (stage.freshness(late) == Freshness::syncing) stage.write(late, {}, Bytes{8});
    REQUIRE(stage.commit(stage.version));
    CHECK(stage.complaint() == "");
  });
}

TEST_CASE("who only says that its content is valid gets what is held back too") {
  for_each_kind(Coverage::learn, [](Stage& stage) {
    auto& block = stage.add(4_MiB);
    stage.discard_and_resume();
    stage.write(block, {}, 3_MiB);
    REQUIRE(stage.mark_valid(1));
    CHECK(stage.state() == "valid v1");
    CHECK(stage.complaint() == "");
  });
}

TEST_CASE("coverage that is switched off in the middle of a learning loses nothing") {
  for_each_kind(Coverage::learn, [](Stage& stage) {
    auto& block = stage.add(4_MiB);
    stage.discard_and_resume();
    stage.settings().coverage = Coverage::off;
    REQUIRE(stage.update());
    stage.write(block, {}, 3_MiB);
    REQUIRE(stage.commit(1));
    CHECK(stage.complaint() == "");
  });
}

TEST_CASE("what was dropped before coverage was switched on is not looked for, and what is dropped after is") {
  const auto coverage = GENERATE(Coverage::enforce, Coverage::learn);
  for_each_kind(coverage, [coverage](Stage& stage) {
    auto& block = stage.add(4_MiB);
    stage.settings().coverage = Coverage::off;
    REQUIRE(stage.pause(Action::discard));
    stage.settings().coverage = coverage;
    REQUIRE(stage.resume());
    stage.discard_and_resume();  // still nothing of it is known
    REQUIRE(stage.update());
    stage.write(block, {}, 3_MiB);
    REQUIRE(stage.commit(1));
    stage.write(block);
    stage.discard_and_resume();
    REQUIRE(stage.update());
    stage.write(block, {}, 3_MiB);
    CHECK(stage.commit(2).has_value() == (coverage == Coverage::learn));
    if (coverage == Coverage::learn) CHECK(stage.complaint() == "");
  });
}

TEST_CASE("copies that are held back follow their blocks into common extents") {
  for_each_kind(Coverage::learn, [](Stage& stage) {
    stage.world.blocks.reserve(64);
    for (int i = 0; i < 40; ++i) stage.add(2_MiB - Bytes{static_cast<std::uint64_t>(i) * 1000});
    for (int round = 0; round < 3; ++round) {
      stage.discard_and_resume();
      REQUIRE(stage.update());
      for (std::size_t i = 0; i < 40; i += 2) stage.write(stage.world.blocks[i]);
      REQUIRE(stage.commit(stage.version));
      CHECK(stage.complaint() == "");
    }
  });
}

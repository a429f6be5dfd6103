// SPDX-License-Identifier: Apache-2.0
// Pause and resume over both stores while the disk fails: each of its calls, once and for good. All or none, no byte is
// lost, the next try succeeds, and nothing leaks.
#include "tests/catch.hpp"
#include "tests/contract/world.hpp"
#include "tests/sanitized.hpp"
#include "tests/unit/faulty_disk.hpp"

using namespace lowtide;
using namespace lowtide::test;

namespace {

class Stage {
 public:
  explicit Stage(BackupSettings backup, bool direct = true)
      : world(SimulatedDriver::instance().driver(), 2, backup, take_disk()) {
    disk->direct = direct;
    world.set_store("lora", Place::disk);
    world.set_action("kv_cache", Action::discard);
    world.add("weights", 3_MiB, 0);
    world.add("weights", Bytes{1000}, 1);
    world.add("lora", 17_MiB, 0);
    world.add("lora", Bytes{5001}, 1);
    world.add("kv_cache", 2_MiB, 1);
    cycle();
    resident = held_now();
  }

  void cycle() {
    const auto report = world.pause();
    INFO((report ? "" : report.error().message()));
    REQUIRE(report);
    REQUIRE(world.parked_blocks() == world.blocks.size());
    REQUIRE(world.complaint() == "");
    resume();
  }

  void resume() {
    const auto report = world.resume();
    INFO((report ? "" : report.error().message()));
    REQUIRE(report);
    REQUIRE(world.parked_blocks() == 0);
    REQUIRE(world.backup_bytes() == Bytes{});
    REQUIRE(world.complaint() == "");
    world.write_unknown();
  }

  bool file_is_open() const { return ::fcntl(disk->fd, F_GETFD) >= 0; }

  std::unique_ptr<FaultyDisk> own_disk = std::make_unique<FaultyDisk>();
  FaultyDisk* disk = own_disk.get();
  World world;
  Held resident;

 private:
  std::unique_ptr<DiskCalls> take_disk() { return std::move(own_disk); }
};

/// Runs `operation` with each call of the disk failing; `check` is told whether one did, and puts everything back.
template <class Operation, class Check>
void for_each_disk_fault(Stage& stage, Operation operation, Check check) {
  for (const int error : {EIO, ENOSPC}) {
    for (const bool for_good : {false, true}) {
      bool failed = true;
      std::size_t nth = 0;
      for (; failed; nth += fault_step) {
        INFO("call " << nth << (for_good ? " and all later ones" : "") << ": " << std::strerror(error));
        stage.disk->start(
            [=](std::size_t index, std::string_view) { return (for_good ? index >= nth : index == nth) ? error : 0; });
        const auto report = operation();
        stage.disk->stop();
        failed = stage.disk->failed();
        INFO((report ? "it succeeded" : report.error().message()));
        REQUIRE(report.has_value() == !failed);
        check(report);
      }
      CHECK(nth > 2);
    }
  }
}

struct Variant {
  BackupSettings backup;
  bool direct;
};
const Variant variants[] = {{{}, true},
                            {{.verify = true}, false},
                            {{.retain = BackupSettings::Retain::none}, false},
                            {{.retain = BackupSettings::Retain::none, .verify = true}, true}};

}  // namespace

TEST_CASE("a pause of all tags whose disk fails parks nothing of any store, and the next one succeeds") {
  for (const auto& [backup, direct] : variants) {
    Stage stage(backup, direct);
    World& world = stage.world;
    for_each_disk_fault(
        stage, [&] { return world.pause(); },
        [&](const Result<TransitionReport>& report) {
          REQUIRE(world.complaint() == "");
          if (report) return stage.resume();
          REQUIRE((report.error().code() == Code::driver || report.error().code() == Code::refused ||
                   report.error().code() == Code::config));
          REQUIRE(world.parked_blocks() == 0);
          REQUIRE(world.backup_bytes() == Bytes{});
          REQUIRE_FALSE(stage.file_is_open());
          REQUIRE(held_now() == stage.resident);
          stage.cycle();
        });
  }
}

TEST_CASE("a resume whose disk fails changes nothing, and the next one succeeds") {
  for (const auto& [backup, direct] : variants) {
    Stage stage(backup, direct);
    World& world = stage.world;
    REQUIRE(world.pause());
    const Held parked = held_now();
    const Bytes saved = world.backup_bytes();
    for_each_disk_fault(
        stage, [&] { return world.resume(); },
        [&](const Result<TransitionReport>& report) {
          REQUIRE(world.complaint() == "");
          if (!report) {
            REQUIRE(report.error().code() == (report.error().native() == EIO ? Code::driver : Code::refused));
            REQUIRE(world.parked_blocks() == world.blocks.size());
            REQUIRE(world.backup_bytes() == saved);
            REQUIRE(held_now() == parked);
            stage.resume();
          } else {
            world.write_unknown();
          }
          REQUIRE(held_now() == stage.resident);
          REQUIRE(world.pause());
        });
    stage.resume();
  }
}

TEST_CASE("after a pause that the disk refused, the host's store copies only what changed since") {
  Stage stage({});
  World& world = stage.world;
  world.write(world.blocks[0]);
  stage.disk->start([](std::size_t, std::string_view name) { return name == "pwrite" ? ENOSPC : 0; });
  REQUIRE_FALSE(world.pause());
  stage.disk->stop();
  const Bytes retained = world.store.retained_bytes();
  CHECK(retained > 3_MiB);
  stage.cycle();
  CHECK(world.store.retained_bytes() == retained);
}

TEST_CASE("a tag that changes its store while it is parked comes back, and goes to the other one next time") {
  Stage stage({});
  World& world = stage.world;
  REQUIRE(world.pause());
  const Bytes on_disk = world.disk.backup_bytes();
  world.set_store("lora", Place::host);
  world.set_store("weights", Place::disk);
  stage.resume();
  REQUIRE(world.pause());
  CHECK(world.complaint() == "");
  CHECK(world.store.backup_bytes() == on_disk);
  CHECK(world.disk.backup_bytes() == Bytes{(3 << 20) + 1000});
  stage.resume();
}

TEST_CASE("progress over both stores is one count that ends at all bytes") {
  Stage stage({});
  World& world = stage.world;
  world.set_action("kv_cache", Action::keep);
  Progress last;
  REQUIRE(world.transitions.pause({}, world.settings, [&](const Progress& progress) {
    CHECK(progress.done >= last.done);
    CHECK((last.total == Bytes{} || last.total == progress.total));
    last = progress;
  }));
  CHECK(last.done == last.total);
  CHECK(last.total == world.backup_bytes());
  stage.resume();
}

TEST_CASE("a block that is freed while it is parked on disk gives its space back") {
  Stage stage({});
  World& world = stage.world;
  REQUIRE(world.pause());
  world.free_all();
  CHECK(world.backup_bytes() == Bytes{});
  CHECK_FALSE(stage.file_is_open());
}

// SPDX-License-Identifier: Apache-2.0
// Backups on disk: the bytes come back, and what the store takes of the host and the disk goes back.
#include "tests/unit/file_store_support.hpp"
#include "tests/unit/own_errors.hpp"

#include <numeric>

using namespace lowtide;
using namespace lowtide::test;
using Catch::Matchers::Contains;

TEST_CASE("bytes of any size at any place come back from the disk, and nothing beside them is touched") {
  for (const bool direct : {true, false}) {
    for (const bool digests : {true, false}) {
      DiskWorld world({.verify = true});
      world.disk->direct = direct;
      world.device.has_digests = digests;
      KnownContent small(8_KiB, 3);
      KnownContent odd(9_MiB, 4);
      KnownContent large(70_MiB, 5);
      const KnownContent large_before = large;
      const KnownContent odd_before = odd;
      SaveRequest requests[] = {
          request_for_parts(world.device, small, {{1, 1}, {4095, 2}}),
          request_for_parts(world.device, odd, {{3, 4097}, {(2 << 20) - 1, (4 << 20) + 3}, {(8 << 20) + 5, 511}}),
          request_for(world.device, large)};
      Bytes told;
      Bytes total;
      REQUIRE(world.save(requests, [&](const Progress& progress) {
        CHECK(progress.done > told);
        told = progress.done;
        total = progress.total;
      }));
      CHECK(told == total);
      CHECK(total == world.store.backup_bytes());
      CHECK(total == Bytes{3 + 4097 + (4 << 20) + 3 + 511} + 70_MiB);
      CHECK(requests[2].backup->size() == 70_MiB);

      small.clear();
      odd.clear();
      large.clear();
      const SaveRequest* const odd_request = &requests[1];
      for (auto& request : requests) {
        REQUIRE(request.backup->begin_load(world.device, request.start));
        REQUIRE(world.device.finish_copies());
        REQUIRE(request.backup->check_loaded(world.device, request.start));
      }
      CHECK(large == large_before);
      KnownContent expected(9_MiB);
      expected.clear();
      for (const AddressRange& range : odd_request->content) {
        const auto offset = (range.start - odd_request->start).value;
        std::memcpy(expected.data() + offset, odd_before.data() + offset, range.size.value);
      }
      CHECK(odd == expected);
    }
  }
}

TEST_CASE("a parked backup on disk is read and written at any place, and unknown bytes are refused") {
  for (const bool direct : {true, false}) {
    DiskWorld world;
    world.disk->direct = direct;
    KnownContent content(10_MiB);
    KnownContent expected = content;
    SaveRequest request = request_for_parts(world.device, content, {{0, (7 << 20) + 11}, {8 << 20, 4096}});
    REQUIRE(world.save(request));
    const std::vector<std::uint8_t> text(3'000'001, 0x5a);
    std::uint64_t at = (2 << 20) - 7;
    REQUIRE(request.backup->write({at}, text.data(), {text.size()}));
    std::memcpy(expected.data() + at, text.data(), text.size());
    for (at = 0; at < (7 << 20) - 5000; at += 777'777) {
      std::vector<std::uint8_t> part(5000);
      REQUIRE(request.backup->read({at}, part.data(), {part.size()}));
      CHECK(std::memcmp(part.data(), expected.data() + at, part.size()) == 0);
    }
    std::vector<std::uint8_t> part((7 << 20) + 12);
    CHECK(request.backup->read({}, part.data(), {part.size() - 1}));
    CHECK(std::memcmp(part.data(), expected.data(), part.size() - 1) == 0);
    CHECK(request.backup->read({}, part.data(), {part.size()}).error().code() == Code::invalid);
    CHECK(request.backup->write({9 << 20}, part.data(), {1}).error().code() == Code::invalid);

    content.clear();
    REQUIRE(load(world.device, content, request));
    CHECK(std::memcmp(content.data(), expected.data(), (7 << 20) + 11) == 0);
  }
}

TEST_CASE("backups on disk are joined and split as their extents are") {
  DiskWorld world({.verify = true});
  KnownContent all(12_MiB);
  const KnownContent before = all;
  const DeviceAddress start = all.range().start;
  SaveRequest first{&world.device, start, {{start, 4_MiB}}, nullptr};
  SaveRequest second{&world.device, start + 4_MiB, {{start + 4_MiB, 6_MiB}}, nullptr};
  SaveRequest third{&world.device, start + 10_MiB, {{start + 10_MiB, 2_MiB}}, nullptr};
  REQUIRE(world.save(first));
  SaveRequest pair[] = {std::move(second), std::move(third)};
  REQUIRE(world.save(pair));
  const Backup::Neighbour others[] = {{pair[0].backup.get(), 4_MiB}, {pair[1].backup.get(), 10_MiB}};
  REQUIRE(first.backup->join(others));
  pair[0].backup.reset();
  pair[1].backup.reset();
  CHECK(world.store.backup_bytes() == 12_MiB);
  CHECK(first.backup->size() == 12_MiB);
  auto rest = first.backup->split(6_MiB);
  CHECK(rest->size() == 6_MiB);
  CHECK(world.store.backup_bytes() == 12_MiB);
  all.clear();
  for (auto* backup : {first.backup.get(), rest.get()}) {
    const DeviceAddress at = backup == rest.get() ? start + 6_MiB : start;
    REQUIRE(backup->begin_load(world.device, at));
    REQUIRE(world.device.finish_copies());
    REQUIRE(backup->check_loaded(world.device, at));
  }
  CHECK(all == before);
  rest.reset();
  first.backup.reset();
  CHECK(world.store.backup_bytes() == Bytes{});
  CHECK_FALSE(world.file_is_open());
}

TEST_CASE("a backup in host memory and one on disk are not joined") {
  DiskWorld world;
  PinnedStore pinned({});
  KnownContent content(4_MiB);
  SaveRequest on_disk = request_for_parts(world.device, content, {{0, 2 << 20}});
  SaveRequest in_memory = request_for_parts(world.device, content, {{2 << 20, 2 << 20}});
  REQUIRE(world.save(on_disk));
  REQUIRE(save(pinned, in_memory));
  const Backup::Neighbour other{in_memory.backup.get(), 2_MiB};
  CHECK_FALSE(on_disk.backup->join({&other, 1}));
  const Backup::Neighbour back{on_disk.backup.get(), 2_MiB};
  CHECK_FALSE(in_memory.backup->join({&back, 1}));
  CHECK(on_disk.backup->size() == 2_MiB);
}

TEST_CASE("the disk has the space of a backup again when it dies, and the file's with the last") {
  DiskWorld world;
  KnownContent first(6_MiB);
  KnownContent second(10_MiB);
  SaveRequest requests[] = {request_for(world.device, first), request_for(world.device, second)};
  REQUIRE(world.save(requests));
  CHECK(world.allocated() >= 16_MiB);
  requests[0].backup.reset();
  CHECK(world.allocated() < 16_MiB);
  CHECK(world.allocated() >= 10_MiB);
  KnownContent again(10_MiB);
  again.clear();
  REQUIRE(load(world.device, again, requests[1]));
  CHECK(again == second);
  CHECK(world.file_is_open());
  requests[1].backup.reset();
  CHECK_FALSE(world.file_is_open());
}

TEST_CASE("the buffers are one registration, made at the first need and kept as host.retain says") {
  DiskWorld world;
  KnownContent content(40_MiB);
  CHECK(world.store.retained_bytes() == Bytes{});
  CHECK(world.save(std::span<SaveRequest>{}));
  CHECK(world.device.registered.empty());
  SaveRequest request = request_for(world.device, content);
  REQUIRE(world.save(request));
  CHECK(world.device.registered.size() == 1);
  CHECK(world.store.retained_bytes() == FileBuffers::size * 2);
  CHECK(world.budget.held() == FileBuffers::size * 2);
  world.store.trim();  // a resume shall not want for memory
  CHECK(world.device.registered.size() == 1);
  request.backup = world.store.retain(std::move(request.backup));
  CHECK(request.backup == nullptr);
  CHECK(world.device.registered.size() == 1);
  world.store.trim();
  CHECK(world.device.registered.empty());
  CHECK(world.budget.held() == Bytes{});

  world.store.set_settings({BackupSettings::Retain::none}, {world.folder.path});
  REQUIRE(world.save(request));
  CHECK(world.device.registered.size() == 1);
  request.backup.reset();
  CHECK(world.device.registered.empty());
  CHECK(world.store.retained_bytes() == Bytes{});
}

TEST_CASE("an older backup is replaced by the one on disk") {
  DiskWorld world;
  PinnedStore pinned({});
  KnownContent content(4_MiB);
  SaveRequest request = request_for(world.device, content);
  REQUIRE(save(pinned, request));
  content.data()[5] ^= 1;
  const KnownContent before = content;
  REQUIRE(world.save(request));
  CHECK(pinned.backup_bytes() == Bytes{});
  REQUIRE(world.save(request));
  CHECK(world.store.backup_bytes() == 4_MiB);
  content.clear();
  REQUIRE(load(world.device, content, request));
  CHECK(content == before);
}

TEST_CASE("a device that refuses to register memory is copied from all the same") {
  DiskWorld world;
  world.device.refuses_to_register = true;
  KnownContent content(20_MiB);
  const KnownContent before = content;
  SaveRequest request = request_for(world.device, content);
  REQUIRE(world.save(request));
  content.clear();
  REQUIRE(load(world.device, content, request));
  CHECK(content == before);
}

TEST_CASE("a driver that refuses to register memory is told of once, not for each piece of it") {
  const OwnErrors errors;
  DiskWorld world({BackupSettings::Retain::none});
  world.device.refuses_to_register = true;
  KnownContent content(2_MiB);
  for (int pause = 0; pause < 3; ++pause) {
    SaveRequest request = request_for(world.device, content);
    REQUIRE(world.save(request));
  }
  CHECK(errors.count("does not register host memory") == 1);
}

TEST_CASE("a folder from TMPDIR that cannot be used is not blamed on disk.path") {
  const char* const set = std::getenv("TMPDIR");
  const std::string before = set == nullptr ? "" : set;
  HostDevice device;
  HostBudget budget;
  ::setenv("TMPDIR", "/nowhere/lowtide", 1);
  FileStore store(budget, {}, {});
  set == nullptr ? ::unsetenv("TMPDIR") : ::setenv("TMPDIR", before.c_str(), 1);
  KnownContent content(2_MiB);
  SaveRequest request = request_for(device, content);
  const auto status = store.save({&request, 1}, {});
  REQUIRE_FALSE(status);
  CHECK(status.error().code() == Code::config);
  CHECK_THAT(status.error().message(), Catch::Matchers::StartsWith("TMPDIR") && Contains("/nowhere/lowtide"));
  store.set_settings({}, {"/nowhere/else"});
  CHECK_THAT(store.save({&request, 1}, {}).error().message(),
             Catch::Matchers::StartsWith("disk.path") && !Contains("TMPDIR"));
}

TEST_CASE("without a path files are made where temporary files are") {
  HostBudget budget;
  const TemporaryFolder folder;
  const char* const set = std::getenv("TMPDIR");
  const std::string before = set == nullptr ? "" : set;
  ::setenv("TMPDIR", folder.path.c_str(), 1);
  FileStore store(budget, {}, {});
  ::setenv("TMPDIR", "relative", 1);
  FileStore other(budget, {}, {});
  set == nullptr ? ::unsetenv("TMPDIR") : ::setenv("TMPDIR", before.c_str(), 1);
  CHECK(store.folder() == folder.path);
  CHECK((other.folder() == "/var/tmp" || other.folder() == "/tmp"));
  store.set_settings({}, {"/elsewhere"});
  CHECK(store.folder() == "/elsewhere");
}

// SPDX-License-Identifier: Apache-2.0
// Backups on disk when the disk is full, fails, or holds other bytes, and when the process is killed.
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/vfs.h>

#include "tests/sanitized.hpp"
#include "tests/unit/child_process.hpp"
#include "tests/unit/file_store_support.hpp"

using namespace lowtide;
using namespace lowtide::test;
using Catch::Matchers::Contains;

namespace {

/// The file's pages in the page cache; nothing if that cannot be told.
std::optional<std::size_t> cached_pages(int fd) {
  struct statfs about {};
  constexpr decltype(about.f_type) tmpfs = 0x01021994;
  if (::fstatfs(fd, &about) != 0 || about.f_type == tmpfs) return std::nullopt;
  struct stat file {};
  if (::fstat(fd, &file) != 0 || file.st_size == 0) return std::nullopt;
  const auto size = static_cast<std::size_t>(file.st_size);
  void* mapped = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, fd, 0);
  if (mapped == MAP_FAILED) return std::nullopt;
  std::vector<unsigned char> pages((size + 4095) / 4096);
  const int result = ::mincore(mapped, size, pages.data());
  ::munmap(mapped, size);
  if (result != 0) return std::nullopt;
  return static_cast<std::size_t>(std::count_if(pages.begin(), pages.end(), [](auto page) { return (page & 1) != 0; }));
}

}  // namespace

TEST_CASE("a disk without room refuses before the first copy, with the numbers") {
  DiskWorld world;
  PinnedStore pinned({});
  KnownContent content(64_MiB);
  SaveRequest request = request_for(world.device, content);
  REQUIRE(save(pinned, request));
  const Bytes copied = world.device.copied_out;
  const Backup* const older = request.backup.get();
  SECTION("says the file system") { world.disk->free = 12_MiB; }
  SECTION("says the reservation") { world.disk->start(fail_call("fallocate", ENOSPC)); }
  SECTION("says the quota") { world.disk->start(fail_call("fallocate", EDQUOT)); }
  const auto status = world.save(request);
  REQUIRE_FALSE(status);
  CHECK(status.error().code() == Code::refused);
  CHECK_THAT(status.error().message(), Contains("64.0 MiB needed") && Contains("free") && Contains(world.folder.path));
  if (world.disk->free) CHECK_THAT(status.error().message(), Contains("12.0 MiB free"));
  CHECK(world.device.copied_out == copied);
  CHECK(request.backup.get() == older);
  CHECK(world.store.backup_bytes() == Bytes{});
  CHECK_FALSE(world.file_is_open());
  world.disk->free.reset();
  world.disk->stop();
  CHECK(world.save(request));
}

TEST_CASE("a disk that does not reserve is written to all the same") {
  for (const int error : {EOPNOTSUPP, ENOSYS, EPERM, EACCES}) {
    DiskWorld world;
    KnownContent content(20_MiB);
    const KnownContent before = content;
    SaveRequest request = request_for(world.device, content);
    world.disk->start(fail_call("fallocate", error));
    REQUIRE(world.save(request));
    content.clear();
    REQUIRE(load(world.device, content, request));
    CHECK(content == before);
  }
}

TEST_CASE("a write that fails undoes the save, wherever it comes") {
  for (const bool direct : {true, false}) {
    for (const int error : {ENOSPC, EDQUOT, EFBIG, EIO}) {
      for (const char* call : {"pwrite", "sync_file_range"}) {
        for (std::size_t skipped = 0; skipped < 4; skipped += fault_step) {
          DiskWorld world;
          world.disk->direct = direct;
          KnownContent content(60_MiB);
          const KnownContent before = content;
          SaveRequest request = request_for(world.device, content);
          world.disk->start(fail_call(call, error, skipped));
          const auto status = world.save(request);
          world.disk->stop();
          INFO(call << " " << skipped << " " << std::strerror(error));
          REQUIRE(status.has_value() == !world.disk->failed());
          if (status) continue;
          CHECK(status.error().code() == (error == EIO ? Code::driver : Code::refused));
          if (error == EIO) CHECK(status.error().native() == EIO);
          CHECK_THAT(status.error().message(), Contains(world.folder.path));
          CHECK(request.backup == nullptr);
          CHECK(world.store.backup_bytes() == Bytes{});
          CHECK_FALSE(world.file_is_open());
          CHECK(content == before);
          REQUIRE(world.save(request));
          content.clear();
          REQUIRE(load(world.device, content, request));
          CHECK(content == before);
        }
      }
    }
  }
}

TEST_CASE("a copy that fails undoes the save") {
  for (int copies = 0; copies < 3; ++copies) {
    DiskWorld world;
    KnownContent content(60_MiB);
    SaveRequest request = request_for(world.device, content);
    world.device.copies_left = copies;
    REQUIRE_FALSE(world.save(request));
    CHECK(request.backup == nullptr);
    CHECK_FALSE(world.file_is_open());
    world.device.copies_left = -1;
    CHECK(world.save(request));
  }
}

TEST_CASE("buffers that copies may still write to are not given back") {
  DiskWorld world({BackupSettings::Retain::none});
  KnownContent content(60_MiB);
  SaveRequest request = request_for(world.device, content);
  world.device.stuck = true;
  REQUIRE_FALSE(world.save(request));
  CHECK(world.device.registered.size() == 1);
  world.store.trim();
  CHECK(world.device.registered.size() == 1);
  world.device.stuck = false;
  world.store.trim();
  CHECK(world.device.registered.empty());
  CHECK(world.save(request));
}

TEST_CASE("calls that are interrupted or do only a part are gone on with") {
  DiskWorld world;
  KnownContent content(21_MiB);
  const KnownContent before = content;
  SaveRequest request = request_for(world.device, content);
  world.disk->most = Bytes{(1 << 20) + 4096 * 3 + 100};
  const auto interrupted = [](std::size_t index, std::string_view name) {
    return name.starts_with('p') && index % 3 == 1 ? EINTR : 0;
  };
  world.disk->direct = false;
  world.disk->start(interrupted);
  REQUIRE(world.save(request));
  content.clear();
  REQUIRE(load(world.device, content, request));
  CHECK(content == before);
  CHECK(world.disk->failed());
}

TEST_CASE("a disk that becomes full within a block is full, and one that goes on is gone on with") {
  DiskWorld world;
  KnownContent content(2_MiB);
  const KnownContent before = content;
  SaveRequest request = request_for(world.device, content);
  world.disk->direct = false;
  world.disk->most = Bytes{512};
  SECTION("it is full") {
    world.disk->start(fail_call("pwrite", ENOSPC, 1));
    const auto status = world.save(request);
    REQUIRE_FALSE(status);
    INFO(status.error().message());
    CHECK(status.error().code() == Code::refused);
  }
  SECTION("it goes on") {
    REQUIRE(world.save(request));
    content.clear();
    REQUIRE(load(world.device, content, request));
    CHECK(content == before);
  }
}

TEST_CASE("a file system that takes O_DIRECT and then no write goes through the page cache") {
  DiskWorld world;
  KnownContent content(21_MiB);
  const KnownContent before = content;
  SaveRequest request = request_for(world.device, content);
  world.disk->start([&](std::size_t, std::string_view name) {
    const bool direct = (::fcntl(world.disk->fd, F_GETFL) & O_DIRECT) != 0;
    return name == "pwrite" && direct ? EINVAL : 0;
  });
  REQUIRE(world.save(request));
  content.clear();
  REQUIRE(load(world.device, content, request));
  CHECK(content == before);
}

TEST_CASE("a read that fails is an error of the load, and the backup stays") {
  DiskWorld world;
  KnownContent content(60_MiB);
  const KnownContent before = content;
  SaveRequest request = request_for(world.device, content);
  REQUIRE(world.save(request));
  content.clear();
  for (std::size_t skipped = 0; skipped < 3; ++skipped) {
    world.disk->start(fail_call("pread", EIO, skipped));
    const auto status = load(world.device, content, request);
    REQUIRE_FALSE(status);
    CHECK(status.error().code() == Code::driver);
    CHECK(status.error().native() == EIO);
    CHECK(std::string(status.error().call()) == "pread");
    REQUIRE(world.device.finish_copies());
  }
  unsigned char byte = 0;
  world.disk->start(fail_call("pread", EIO));
  CHECK(request.backup->read({1}, &byte, {1}).error().code() == Code::driver);
  world.disk->stop();
  world.disk->ends = true;
  CHECK(load(world.device, content, request).error().code() == Code::corrupt);
  world.disk->ends = false;
  REQUIRE(world.device.finish_copies());
  REQUIRE(load(world.device, content, request));
  CHECK(content == before);
}

TEST_CASE("with backup.verify a byte that changed on the disk is found") {
  for (const bool digests : {true, false}) {
    DiskWorld world({.verify = true});
    world.device.has_digests = digests;
    KnownContent content(30_MiB);
    SaveRequest request = request_for(world.device, content);
    REQUIRE(world.save(request));
    REQUIRE(load(world.device, content, request));
    flip_byte(world.disk->fd, (17 << 20) + 77);
    const auto status = load(world.device, content, request);
    REQUIRE_FALSE(status);
    CHECK(status.error().code() == Code::corrupt);
    flip_byte(world.disk->fd, (17 << 20) + 77);
    CHECK(load(world.device, content, request));
    // What the program writes is right by definition.
    REQUIRE(request.backup->write({17 << 20}, "x", {1}));
    CHECK(load(world.device, content, request));
    CHECK(content.data()[17 << 20] == 'x');
  }
}

TEST_CASE("the page cache holds nothing of a backup") {
  for (const bool direct : {true, false}) {
    DiskWorld world;
    world.disk->direct = direct;
    KnownContent content(48_MiB);
    SaveRequest request = request_for(world.device, content);
    REQUIRE(world.save(request));
    const auto after_save = cached_pages(world.disk->fd);
    if (!after_save) {
      WARN("skipped: this file system does not tell what is in the page cache");
      return;
    }
    CHECK(*after_save == 0);
    REQUIRE(load(world.device, content, request));
    CHECK(*cached_pages(world.disk->fd) == 0);
  }
}

TEST_CASE("a folder that cannot be used is an error that names it") {
  DiskWorld world;
  KnownContent content(2_MiB);
  SaveRequest request = request_for(world.device, content);
  world.store.set_settings({}, {world.folder.path + "/nowhere"});
  const auto status = world.save(request);
  REQUIRE_FALSE(status);
  CHECK(status.error().code() == Code::config);
  CHECK_THAT(status.error().message(), Contains("disk.path") && Contains(world.folder.path + "/nowhere"));
  world.store.set_settings({}, {world.folder.path});
  world.disk->start(fail_call("open", EMFILE));
  CHECK(world.save(request).error().code() == Code::refused);
}

TEST_CASE("a process that is killed leaves no file") {
  const TemporaryFolder folder;
  Child child([&](const Child::Line& line) {
    HostDevice device;
    HostBudget budget;
    FileStore store(budget, {}, {folder.path});
    KnownContent content(20_MiB);
    SaveRequest request = request_for(device, content);
    // In the middle of the save, and then for good.
    const auto status = store.save({&request, 1}, [&, told = false](const Progress&) mutable {
      if (std::exchange(told, true)) return;
      line.say('c');
      line.wait();
    });
    line.say(status ? 's' : 'x');
    line.wait();
  });
  REQUIRE(child.hear() == 'c');
  CHECK(folder.empty());
  SECTION("during the save") {}
  SECTION("after it") {
    child.tell();
    REQUIRE(child.hear() == 's');
    CHECK(folder.empty());
  }
  child.kill();
  CHECK(folder.empty());
}

TEST_CASE("a small file system is filled to its end and not over it") {
  const TemporaryFolder folder;
  Child child([&](const Child::Line& line) {
    const bool mounted = ::unshare(CLONE_NEWNS) == 0 && ::mount("", "/", "", MS_REC | MS_PRIVATE, nullptr) == 0 &&
                         ::mount("lowtide", folder.path.c_str(), "tmpfs", 0, "size=12m") == 0;
    line.say(mounted ? 'm' : 'n');
    HostDevice device;
    HostBudget budget;
    FileStore store(budget, {}, {folder.path});
    KnownContent first(8_MiB);
    KnownContent second(8_MiB, 2);
    const KnownContent before = first;
    SaveRequest requests[] = {request_for(device, first), request_for(device, second)};
    line.say(store.save({&requests[0], 1}, {}) ? 's' : 'x');
    const auto refused = store.save({&requests[1], 1}, {});
    line.say(!refused && refused.error().code() == Code::refused ? 'r' : 'x');
    first.clear();
    line.say(load(device, first, requests[0]) && first == before ? 'l' : 'x');
    requests[0].backup.reset();
    line.say(store.save({&requests[1], 1}, {}) ? 's' : 'x');
    line.wait();
  });
  if (child.hear() == 'n') {
    WARN("skipped: no file system can be mounted here");
    return;
  }
  for (const char letter : {'s', 'r', 'l', 's'}) CHECK(child.hear() == letter);
}

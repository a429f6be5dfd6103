// SPDX-License-Identifier: Apache-2.0
// Writes to parked backups on disk: all or nothing.
#include "tests/unit/file_store_support.hpp"

using namespace lowtide;
using namespace lowtide::test;
using Catch::Matchers::Contains;

TEST_CASE("a write to a backup that fails leaves it as it was, digests included") {
  for (const bool direct : {true, false}) {
    for (const char* call : {"pread", "pwrite", "sync_file_range"}) {
      for (std::size_t nth = 0; nth < 5; ++nth) {
        DiskWorld world({.verify = true});
        world.disk->direct = direct;
        KnownContent content(8_MiB);
        const KnownContent before = content;
        SaveRequest request = request_for(world.device, content);
        REQUIRE(world.save(request));
        const std::vector<unsigned char> other(8 << 20, 0x5a);
        world.disk->start(fail_call(call, EIO, nth));
        const auto status = request.backup->write({1000}, other.data(), {(8 << 20) - 2000});
        world.disk->stop();
        INFO(call << " " << nth);
        REQUIRE(status.has_value() == !world.disk->failed());
        if (status) continue;
        CHECK(status.error().code() == Code::driver);
        CHECK(status.error().native() == EIO);
        content.clear();
        REQUIRE(load(world.device, content, request));
        CHECK(content == before);
        flip_byte(world.disk->fd, 1234);
        CHECK(load(world.device, content, request).error().code() == Code::corrupt);
      }
    }
  }
}

TEST_CASE(
    "what a failed write changed and could not put back is said, and found by backup.verify until it is written") {
  const int error = GENERATE(EIO, ENOSPC);
  DiskWorld world({.verify = true});
  KnownContent content(8_MiB);
  SaveRequest request = request_for(world.device, content);
  REQUIRE(world.save(request));
  const std::vector<unsigned char> other(8 << 20, 0x5a);
  std::size_t writes = 0;
  world.disk->start([&](std::size_t, std::string_view name) { return name == "pwrite" && writes++ >= 2 ? error : 0; });
  const auto status = request.backup->write({}, other.data(), 8_MiB);
  world.disk->stop();
  REQUIRE_FALSE(status);
  CHECK(status.error().code() == Code::driver);
  CHECK_THAT(status.error().message(), Contains("4.00 MiB") && Contains("not be put back"));
  CHECK(load(world.device, content, request).error().code() == Code::corrupt);
  REQUIRE(request.backup->write({}, other.data(), 8_MiB));
  REQUIRE(load(world.device, content, request));
  CHECK(std::memcmp(content.data(), other.data(), other.size()) == 0);
}

TEST_CASE("a disk that is full for good refuses a write of which it took nothing") {
  DiskWorld world({.verify = true});
  KnownContent content(8_MiB);
  const KnownContent before = content;
  SaveRequest request = request_for(world.device, content);
  REQUIRE(world.save(request));
  const std::vector<unsigned char> other(8 << 20, 0x5a);
  world.disk->start([](std::size_t, std::string_view name) { return name == "pwrite" ? ENOSPC : 0; });
  CHECK(request.backup->write({}, other.data(), 8_MiB).error().code() == Code::refused);
  world.disk->stop();
  content.clear();
  REQUIRE(load(world.device, content, request));
  CHECK(content == before);
}

TEST_CASE("a write that is not all backed up, or needs more host memory than there may be, writes nothing") {
  DiskWorld world;
  KnownContent content(10_MiB);
  SaveRequest request = request_for_parts(world.device, content, {{0, 8 << 20}});
  REQUIRE(world.save(request));
  const std::vector<unsigned char> other(10 << 20, 0x5a);
  CHECK(request.backup->write({}, other.data(), 9_MiB).error().code() == Code::invalid);
  world.budget.set_budget(FileBuffers::size * 2 + 4_MiB);
  CHECK(request.backup->write({}, other.data(), 8_MiB).error().code() == Code::host_budget);
  std::vector<unsigned char> bytes(8 << 20);
  REQUIRE(request.backup->read({}, bytes.data(), 8_MiB));
  CHECK(std::memcmp(bytes.data(), content.data(), bytes.size()) == 0);
  CHECK(request.backup->write({}, other.data(), 2_MiB));  // a page takes nothing of the budget
  world.budget.set_budget({});
  CHECK(request.backup->write({}, other.data(), 8_MiB));
  CHECK(world.budget.held() == FileBuffers::size * 2);
}

// SPDX-License-Identifier: Apache-2.0
// What a store that keeps the bytes of the last pause does not copy again, and what it must.
#include "allocator/backup/pinned_backup.hpp"
#include "tests/unit/host_device.hpp"

using namespace lowtide;

TEST_CASE("what did not change since the resume is not copied again") {
  HostDevice device;
  PinnedStore store({});
  KnownContent content(130_MiB);
  SaveRequest request = request_for(device, content);
  CHECK(copied_by(device, store, request) == 130_MiB);
  request.backup = store.retain(std::move(request.backup));
  REQUIRE(request.backup);
  CHECK(store.backup_bytes() == Bytes{});
  CHECK(store.retained_bytes() == 130_MiB);

  SECTION("nothing changed") { CHECK(copied_by(device, store, request) == Bytes{}); }
  SECTION("bytes of two pages changed") {
    content.data()[0] ^= 1;
    content.data()[(7 << 20) + 5] ^= 0x80;
    CHECK(copied_by(device, store, request) == 4_MiB);
  }
  SECTION("everything changed") {
    content = KnownContent(130_MiB, 99);
    request.start = content.range().start;
    request.content = {content.range()};
    CHECK(copied_by(device, store, request) == 130_MiB);
  }
  SECTION("a part of it was freed, and another grew") {
    content.data()[3] ^= 1;
    request.content = {{content.range().start, 3_MiB}, {content.range().start + 8_MiB, 10_MiB}};
    CHECK(copied_by(device, store, request) == 3_MiB);
    CHECK(request.backup->size() == 13_MiB);
  }
  CHECK(store.backup_bytes() == request.backup->size());
  const KnownContent before = content;
  content.clear();
  REQUIRE(load(device, content, request));
  for (const AddressRange& range : request.content) {
    const auto offset = range.start - content.range().start;
    CHECK(std::memcmp(content.data() + offset.value, before.data() + offset.value, range.size.value) == 0);
  }
}

TEST_CASE("bytes that were written to a backup are copied again by the next pause") {
  HostDevice device;
  PinnedStore store({});
  KnownContent content(6_MiB);
  SaveRequest request = request_for(device, content);
  REQUIRE(save(store, request));
  const std::uint8_t other = content.data()[100] ^ 1;
  REQUIRE(request.backup->write(Bytes{100}, &other, Bytes{1}));
  REQUIRE(load(device, content, request));
  CHECK(content.data()[100] == other);
  request.backup = store.retain(std::move(request.backup));
  CHECK(copied_by(device, store, request) == 2_MiB);
  request.backup = store.retain(std::move(request.backup));
  CHECK(copied_by(device, store, request) == Bytes{});
}

TEST_CASE("a device without digests copies everything") {
  HostDevice device;
  device.has_digests = false;
  PinnedStore store({});
  KnownContent content(6_MiB);
  SaveRequest request = request_for(device, content);
  REQUIRE(save(store, request));
  request.backup = store.retain(std::move(request.backup));
  CHECK_FALSE(request.backup);
  CHECK(store.retained_bytes() == 6_MiB);
  CHECK(copied_by(device, store, request) == 6_MiB);
}

TEST_CASE("a wrong byte in a host copy is found before it is used") {
  HostDevice device;
  device.has_digests = GENERATE(true, false);
  PinnedStore store({.verify = true});
  KnownContent content(6_MiB);
  SaveRequest request = request_for(device, content);
  REQUIRE(save(store, request));
  REQUIRE(load(device, content, request));
  auto* const page = static_cast<PinnedBackup&>(*request.backup).pages()[1].place.memory;
  page[77] ^= 4;
  SECTION("while parked") {
    const auto status = load(device, content, request);
    REQUIRE_FALSE(status);
    CHECK(status.error().code() == Code::corrupt);
  }
  SECTION("while retained: the page is copied again") {
    page[77] ^= 4;
    REQUIRE(load(device, content, request));
    request.backup = store.retain(std::move(request.backup));
    page[77] ^= 4;
    const KnownContent before = content;
    CHECK(copied_by(device, store, request) == (device.has_digests ? 2_MiB : 6_MiB));
    content.clear();
    REQUIRE(load(device, content, request));
    CHECK(content == before);
  }
}

TEST_CASE("a copy that failed leaves nothing that the next pause takes for known") {
  HostDevice device;
  PinnedStore store({});
  KnownContent content(6_MiB);
  SaveRequest request = request_for(device, content);
  REQUIRE(save(store, request));
  request.backup = store.retain(std::move(request.backup));
  content.data()[0] ^= 1;
  device.copies_left = 0;
  REQUIRE_FALSE(save(store, request));
  device.copies_left = -1;
  const KnownContent before = content;
  REQUIRE(save(store, request));
  content.clear();
  REQUIRE(load(device, content, request));
  CHECK(content == before);
}

TEST_CASE("backups of neighbours are joined and split without a byte lost") {
  HostDevice device;
  PinnedStore store({});
  KnownContent all(14_MiB);
  const auto start = all.range().start;
  SaveRequest requests[] = {{&device, start, {{start, Bytes{3'000'000}}}, nullptr},
                            {&device, start + 4_MiB, {{start + 4_MiB, 6_MiB}}, nullptr},
                            {&device, start + 10_MiB, {{start + 10_MiB, Bytes{512}}}, nullptr}};
  REQUIRE(store.save(requests, {}));
  const Bytes total = store.backup_bytes();
  const Backup::Neighbour others[] = {{requests[1].backup.get(), 4_MiB}, {requests[2].backup.get(), 10_MiB}};
  REQUIRE(requests[0].backup->join(others));
  requests[1].backup.reset();
  requests[2].backup.reset();
  CHECK(requests[0].backup->size() == total);
  CHECK(store.backup_bytes() == total);

  const KnownContent before = all;
  const auto matches = [&](Bytes offset, Bytes size) {
    return std::memcmp(all.data() + offset.value, before.data() + offset.value, size.value) == 0;
  };
  SECTION("joined") {
    all.clear();
    REQUIRE(load(device, all, requests[0]));
  }
  SECTION("split") {
    const auto rest = requests[0].backup->split(4_MiB);
    CHECK(store.backup_bytes() == total);
    CHECK(rest->size() == 6_MiB + Bytes{512});
    all.clear();
    REQUIRE(requests[0].backup->begin_load(device, start));
    REQUIRE(rest->begin_load(device, start + 4_MiB));
    REQUIRE(device.finish_copies());
  }
  CHECK(matches({}, Bytes{3'000'000}));
  CHECK(matches(4_MiB, 6_MiB));
  CHECK(matches(10_MiB, Bytes{512}));
  std::uint8_t byte = 0;
  CHECK_FALSE(requests[0].backup->read(3_MiB + 512_KiB, &byte, Bytes{1}));
}

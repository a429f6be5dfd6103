// SPDX-License-Identifier: Apache-2.0
#include "allocator/backup/pinned_store.hpp"

#include "allocator/backup/pinned_backup.hpp"
#include "allocator/base/log.hpp"
#include "tests/unit/host_device.hpp"
#include "tests/unit/own_errors.hpp"

using namespace lowtide;
using Catch::Matchers::Contains;
using lowtide::test::OwnErrors;

namespace {

constexpr BackupSettings none{BackupSettings::Retain::none};

}  // namespace

TEST_CASE("bytes come back exactly, over several slabs and in pieces") {
  HostDevice device;
  PinnedStore store({});
  KnownContent small(2_MiB, 7);
  KnownContent large(150_MiB, 3);
  const KnownContent large_before = large;
  SaveRequest requests[] = {request_for(device, small), request_for(device, large)};
  Bytes told;
  REQUIRE(store.save(requests, [&](const Progress& progress) {
    CHECK(progress.total == 152_MiB);
    CHECK(progress.done > told);
    told = progress.done;
  }));
  CHECK(told == 152_MiB);
  CHECK(store.backup_bytes() == 152_MiB);
  CHECK(requests[1].backup->size() == 150_MiB);

  // Across the border of two slabs.
  std::vector<std::uint8_t> part(3'000'001);
  const Bytes offset{(64 << 20) - 1'500'003};
  REQUIRE(requests[1].backup->read(offset, part.data(), {part.size()}));
  CHECK(std::memcmp(part.data(), large.data() + offset.value, part.size()) == 0);

  large.clear();
  REQUIRE(load(device, large, requests[1]));
  CHECK(large == large_before);
}

TEST_CASE("a write changes its bytes of a backup and no other") {
  HostDevice device;
  PinnedStore store({});
  KnownContent content(130_MiB);
  SaveRequest request = request_for(device, content);
  REQUIRE(save(store, request));
  const std::vector<std::uint8_t> text(70 << 20, 0x5a);
  const Bytes offset{31 << 20};
  REQUIRE(request.backup->write(offset, text.data(), {text.size()}));
  std::vector<std::uint8_t> all((130 << 20));
  REQUIRE(request.backup->read({}, all.data(), {all.size()}));
  CHECK(std::memcmp(all.data(), content.data(), offset.value) == 0);
  CHECK(std::memcmp(all.data() + offset.value, text.data(), text.size()) == 0);
  const auto rest = offset.value + text.size();
  CHECK(std::memcmp(all.data() + rest, content.data() + rest, all.size() - rest) == 0);
}

TEST_CASE("a backup can be looked at where it lies, slab by slab") {
  HostDevice device;
  PinnedStore store({});
  KnownContent content(130_MiB);
  SaveRequest request = request_for(device, content);
  request.content = {{content.range().start, 100_MiB}, {content.range().start + 101_MiB, 3_MiB}};
  REQUIRE(save(store, request));
  const auto first = request.backup->view({});
  REQUIRE(first);
  // Three slabs of 32 MiB and one of 8, in the order in which their threads have got them.
  CHECK((first->size() == (32 << 20) || first->size() == (8 << 20)));
  CHECK(std::memcmp(first->data(), content.data(), first->size()) == 0);
  const auto inside = request.backup->view(Bytes{(99 << 20) + 17});
  REQUIRE(inside);
  CHECK(inside->size() == (1 << 20) - 17);
  CHECK(std::memcmp(inside->data(), content.data() + (99 << 20) + 17, inside->size()) == 0);
  for (const Bytes offset : {100_MiB, 104_MiB, 1024_GiB}) {
    const auto none_there = request.backup->view(offset);
    REQUIRE_FALSE(none_there);
    CHECK(none_there.error().code() == Code::invalid);
  }
}

TEST_CASE("host memory is kept for the next pause, as far as the last one needed it") {
  HostDevice device;
  PinnedStore store({});
  KnownContent large(130_MiB);
  KnownContent small(2_MiB);
  SaveRequest request = request_for(device, large);
  REQUIRE(save(store, request));
  const auto kept = device.registered;
  CHECK(kept.size() == 5);
  request.backup.reset();
  CHECK(store.backup_bytes() == Bytes{});
  CHECK(store.retained_bytes() == 130_MiB);
  REQUIRE(save(store, request));
  CHECK(device.registered == kept);
  SaveRequest little = request_for(device, small);
  request.backup.reset();
  REQUIRE(save(store, little));
  CHECK(device.registered.size() == 1);
}

TEST_CASE("host memory is given back at once if none is to be kept") {
  HostDevice device;
  PinnedStore store(none);
  KnownContent content(70_MiB);
  SaveRequest request = request_for(device, content);
  REQUIRE(save(store, request));
  CHECK(device.registered.size() == 3);
  request.backup.reset();
  CHECK(device.registered.empty());
  CHECK(store.retained_bytes() == Bytes{});
}

TEST_CASE("a save that fails leaves no backup") {
  HostDevice device;
  PinnedStore store(none);
  KnownContent first(2_MiB);
  KnownContent second(130_MiB);
  SaveRequest requests[] = {request_for(device, first), request_for(device, second)};
  device.copies_left = 2;
  REQUIRE_FALSE(store.save(requests, {}));
  CHECK_FALSE(requests[0].backup);
  CHECK_FALSE(requests[1].backup);
  CHECK(store.backup_bytes() == Bytes{});
  CHECK(device.registered.empty());
}

TEST_CASE("memory that a copy may still write to stays until the device has answered") {
  HostDevice device;
  PinnedStore store(none);
  KnownContent content(2_MiB);
  SaveRequest request = request_for(device, content);
  device.stuck = true;
  REQUIRE_FALSE(save(store, request));
  CHECK_FALSE(request.backup);
  CHECK(device.registered.size() == 1);
  device.stuck = false;
  REQUIRE(device.synchronise());  // writes to the slab
  REQUIRE(save(store, request));
  request.backup.reset();
  CHECK(device.registered.empty());
}

TEST_CASE("memory that the driver does not register works") {
  HostDevice device;
  device.refuses_to_register = true;
  set_log_level(LogLevel::off);
  PinnedStore store({});
  KnownContent content(2_MiB);
  const KnownContent before = content;
  SaveRequest request = request_for(device, content);
  REQUIRE(save(store, request));
  content.clear();
  REQUIRE(load(device, content, request));
  CHECK(content == before);
}

TEST_CASE("a driver that refuses to register memory is told of once, not for each piece of it") {
  const OwnErrors errors;
  HostDevice device;
  device.refuses_to_register = true;
  PinnedStore store(none);
  KnownContent content(Slab::usual_size * 2 + 2_MiB);
  for (int pause = 0; pause < 2; ++pause) {
    SaveRequest request = request_for(device, content);
    REQUIRE(save(store, request));
  }
  CHECK(errors.count("does not register host memory") == 1);
}

TEST_CASE("memory that the driver does not unregister is kept and used again") {
  HostDevice device;
  PinnedStore store(none);
  KnownContent content(2_MiB);
  SaveRequest request = request_for(device, content);
  REQUIRE(save(store, request));
  const auto kept = device.registered;
  device.refuses_to_unregister = true;
  request.backup.reset();
  CHECK(store.retained_bytes() == 2_MiB);
  REQUIRE(save(store, request));
  CHECK(device.registered == kept);
  device.refuses_to_unregister = false;
  request.backup.reset();
  CHECK(device.registered.empty());
  CHECK(store.retained_bytes() == Bytes{});
}

TEST_CASE("a backup larger than the host's memory is refused with the numbers") {
  HostDevice device;
  PinnedStore store({});
  SaveRequest request{&device, {0x1000}, {{{0x1000}, Bytes{1ull << 45}}}, nullptr};
  const auto status = save(store, request);
  REQUIRE_FALSE(status);
  CHECK(status.error().code() == Code::host_budget);
  CHECK_THAT(status.error().message(), Contains("needs 32.1 TiB"));
  CHECK_THAT(status.error().message(), Contains("MemAvailable"));
  CHECK_FALSE(request.backup);
  CHECK(device.registered.empty());
}

TEST_CASE("what pages leave unused at the end of slabs is counted before the first copy") {
  HostDevice device;
  std::vector<KnownContent> contents;
  for (std::uint64_t i = 0; i < 40; ++i) contents.emplace_back(Bytes{1'981'808}, i);  // 16 of them fill a slab
  const auto requests = [&] {
    std::vector<SaveRequest> all;
    for (const KnownContent& content : contents) all.push_back(request_for(device, content));
    return all;
  };
  PinnedStore store({.budget = 78_MiB});  // more than the content
  auto refused = requests();
  const auto status = store.save(refused, {});
  REQUIRE_FALSE(status);
  CHECK(status.error().code() == Code::host_budget);
  CHECK(device.copied_out == Bytes{});
  store.set_settings({});
  auto saved = requests();
  REQUIRE(store.save(saved, {}));
  CHECK(device.registered.size() == 3);
}

TEST_CASE("a copy ends where the registration of its host memory ends") {
  HostDevice device;
  PinnedStore store({});
  // Of odd sizes, so that their pages meet the ends of slabs everywhere.
  std::vector<KnownContent> contents;
  std::vector<SaveRequest> requests;
  for (std::uint64_t i = 0; i < 40; ++i) contents.emplace_back(1_MiB + Bytes{512 * 1000 * i}, i);
  for (const auto& content : contents) requests.push_back(request_for(device, content));
  for (int round = 0; round < 3; ++round) {
    REQUIRE(store.save(requests, {}));
    for (std::size_t i = 0; i < contents.size(); ++i) REQUIRE(load(device, contents[i], requests[i]));
    for (auto& request : requests) request.backup.reset();
  }
}

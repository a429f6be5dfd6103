// SPDX-License-Identifier: Apache-2.0
#include "allocator/backup/pinned_store.hpp"

#include <cstring>
#include <set>

#include "allocator/backup/host_memory.hpp"
#include "allocator/base/log.hpp"
#include "tests/catch.hpp"

using namespace lowtide;
using Catch::Matchers::Contains;

namespace {

/// A device whose memory is host memory, and whose copies are done when they are waited for.
class HostDevice final : public Backend {
 public:
  DeviceId device() const noexcept override { return DeviceId{0}; }
  const std::string& device_name() const noexcept override { return text_; }
  const char* name() const noexcept override { return "host"; }
  const std::string& reason() const noexcept override { return text_; }
  const Capabilities& capabilities() const noexcept override { return capabilities_; }
  Status attach(ContextId) override { return {}; }
  void detach(ContextId) noexcept override {}
  Result<DeviceAddress> reserve(Bytes) override { return DeviceAddress{}; }
  Status release_reservation(AddressRange) override { return {}; }
  Result<PhysicalId> create(Bytes) override { return PhysicalId{}; }
  Status release(PhysicalId) override { return {}; }
  Status map(AddressRange, PhysicalId) override { return {}; }
  Status unmap(AddressRange) override { return {}; }
  Status set_access(AddressRange, std::span<const DeviceId>) override { return {}; }
  Status copy_out(void* host, AddressRange range) override {
    if (copies_left-- == 0) return fail(Code::driver, "the copy failed");
    pending_.push_back({host, reinterpret_cast<const void*>(range.start.value), range.size.value});
    return {};
  }
  Status copy_in(AddressRange range, const void* host) override {
    pending_.push_back({reinterpret_cast<void*>(range.start.value), host, range.size.value});
    return {};
  }
  Status fill(AddressRange, std::uint8_t) override { return {}; }
  Status finish_copies() override {
    if (stuck) return fail(Code::driver, "the device does not answer");
    for (const auto& copy : pending_) std::memcpy(copy.to, copy.from, copy.size);
    pending_.clear();
    return {};
  }
  Status digest(std::span<const AddressRange>, std::span<PageDigest>) override {
    return fail(Code::unsupported, "no digests");
  }
  const DigestKey& digest_key() const noexcept override { return key_; }
  Status synchronise() override { return finish_copies(); }
  Status register_host(void* memory, Bytes) override {
    if (refuses_to_register) return fail(Code::driver, "no");
    registered.insert(memory);
    return {};
  }
  Status unregister_host(void* memory) noexcept override {
    if (refuses_to_unregister) return fail(Code::driver, "no");
    registered.erase(memory);
    return {};
  }
  Result<MemoryInfo> memory_info() override { return MemoryInfo{}; }

  std::set<void*> registered;
  bool refuses_to_register = false;
  bool refuses_to_unregister = false;
  bool stuck = false;
  int copies_left = -1;

 private:
  struct Copy {
    void* to;
    const void* from;
    std::size_t size;
  };
  std::vector<Copy> pending_;
  DigestKey key_{1};
  std::string text_ = "host memory";
  Capabilities capabilities_{.stable_address = true, .granularity = 2_MiB};
};

/// Device memory with bytes that tell their place.
class Content {
 public:
  explicit Content(Bytes size, std::uint64_t seed = 1) : bytes_(size.value / 8) {
    for (std::size_t i = 0; i < bytes_.size(); ++i) bytes_[i] = (i + seed) * 0x9e3779b97f4a7c15u;
  }
  AddressRange range() const { return {{reinterpret_cast<std::uintptr_t>(bytes_.data())}, {bytes_.size() * 8}}; }
  bool operator==(const Content&) const = default;
  void clear() { std::fill(bytes_.begin(), bytes_.end(), 0); }
  const std::uint8_t* data() const { return reinterpret_cast<const std::uint8_t*>(bytes_.data()); }

 private:
  std::vector<std::uint64_t> bytes_;
};

Status save(PinnedStore& store, SaveRequest& request) { return store.save({&request, 1}, {}); }

constexpr BackupSettings none{BackupSettings::Retain::none};

}  // namespace

TEST_CASE("bytes come back exactly, over several slabs and in pieces") {
  HostDevice device;
  PinnedStore store({});
  Content small(2_MiB, 7);
  Content large(150_MiB, 3);
  const Content large_before = large;
  SaveRequest requests[] = {{&device, small.range(), nullptr}, {&device, large.range(), nullptr}};
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
  REQUIRE(store.begin_load(device, large.range(), *requests[1].backup));
  REQUIRE(device.finish_copies());
  CHECK(large == large_before);
}

TEST_CASE("a write changes its bytes of a backup and no other") {
  HostDevice device;
  PinnedStore store({});
  Content content(130_MiB);
  SaveRequest request{&device, content.range(), nullptr};
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

TEST_CASE("host memory is kept for the next pause, as far as the last one needed it") {
  HostDevice device;
  PinnedStore store({});
  Content large(130_MiB);
  Content small(2_MiB);
  SaveRequest request{&device, large.range(), nullptr};
  REQUIRE(save(store, request));
  const auto kept = device.registered;
  CHECK(kept.size() == 3);
  request.backup.reset();
  CHECK(store.backup_bytes() == Bytes{});
  CHECK(store.retained_bytes() == 192_MiB);
  REQUIRE(save(store, request));
  CHECK(device.registered == kept);
  SaveRequest little{&device, small.range(), nullptr};
  request.backup.reset();
  REQUIRE(save(store, little));
  CHECK(device.registered.size() == 1);
}

TEST_CASE("host memory is given back at once if none is to be kept") {
  HostDevice device;
  PinnedStore store(none);
  Content content(70_MiB);
  SaveRequest request{&device, content.range(), nullptr};
  REQUIRE(save(store, request));
  CHECK(device.registered.size() == 2);
  request.backup.reset();
  CHECK(device.registered.empty());
  CHECK(store.retained_bytes() == Bytes{});
}

TEST_CASE("a save that fails leaves no backup") {
  HostDevice device;
  PinnedStore store(none);
  Content first(2_MiB);
  Content second(130_MiB);
  SaveRequest requests[] = {{&device, first.range(), nullptr}, {&device, second.range(), nullptr}};
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
  Content content(2_MiB);
  SaveRequest request{&device, content.range(), nullptr};
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
  Content content(2_MiB);
  const Content before = content;
  SaveRequest request{&device, content.range(), nullptr};
  REQUIRE(save(store, request));
  content.clear();
  REQUIRE(store.begin_load(device, content.range(), *request.backup));
  REQUIRE(device.finish_copies());
  CHECK(content == before);
}

TEST_CASE("memory that the driver does not unregister is kept and used again") {
  HostDevice device;
  PinnedStore store(none);
  Content content(2_MiB);
  SaveRequest request{&device, content.range(), nullptr};
  REQUIRE(save(store, request));
  const auto kept = device.registered;
  device.refuses_to_unregister = true;
  request.backup.reset();
  CHECK(store.retained_bytes() == Slab::usual_size);
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
  SaveRequest request{&device, {{0x1000}, Bytes{1ull << 50}}, nullptr};
  const auto status = save(store, request);
  REQUIRE_FALSE(status);
  CHECK(status.error().code() == Code::host_budget);
  CHECK_THAT(status.error().message(), Contains("needs 1.00 PiB"));
  CHECK_THAT(status.error().message(), Contains("are available"));
  CHECK_FALSE(request.backup);
  CHECK(device.registered.empty());
}

TEST_CASE("what is kept from an earlier pause counts as room") {
  CHECK(host_has_room(Bytes{1ull << 50}, Bytes{1ull << 50}));
  CHECK_FALSE(host_has_room(Bytes{1ull << 50}, 1_GiB));
}

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#include "allocator/backup/pinned_store.hpp"
#include "tests/catch.hpp"

// What the tests of the stores share.
namespace lowtide {

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
  Result<DeviceAddress> reserve(Bytes, ContextId) override { return DeviceAddress{}; }
  Status release_reservation(AddressRange) override { return {}; }
  Result<PhysicalId> create(AddressRange) override { return PhysicalId{}; }
  bool has_host_backing() override { return false; }
  Result<PhysicalId> create_host(Bytes) override { return fail(Code::unsupported, "no"); }
  Status release(PhysicalId) override { return {}; }
  Status keep_address(AddressRange) override { return {}; }
  bool is_taken(DeviceAddress) override { return false; }
  Status map(AddressRange, PhysicalId) override { return {}; }
  Status unmap(AddressRange) override { return {}; }
  Status set_access(AddressRange, std::span<const DeviceId>) override { return {}; }
  Status set_read_access(AddressRange, std::span<const DeviceId>) override { return fail(Code::unsupported, "no"); }
  Status copy_out(void* host, AddressRange range) override {
    if (copies_left-- == 0) return fail(Code::driver, "the copy failed");
    if (is_torn(host, range.size)) return fail(Code::driver, "the copy leaves the registration that it begins in");
    copied_out += range.size;
    pending_.push_back({host, reinterpret_cast<const void*>(range.start.value), range.size.value});
    return {};
  }
  Status copy_in(AddressRange range, const void* host) override {
    if (is_torn(host, range.size)) return fail(Code::driver, "the copy leaves the registration that it begins in");
    pending_.push_back({reinterpret_cast<void*>(range.start.value), host, range.size.value});
    return {};
  }
  Status copy_within(AddressRange to, DeviceAddress from) override {
    pending_.push_back(
        {reinterpret_cast<void*>(to.start.value), reinterpret_cast<const void*>(from.value), to.size.value});
    return {};
  }
  Status fill(AddressRange, std::uint8_t) override { return {}; }
  Status limit_copies(Bytes) override { return finish_copies(); }
  Status digest(std::span<const AddressRange> pages, std::span<PageDigest> digests) override {
    if (!has_digests) return fail(Code::unsupported, "no digests");
    for (std::size_t i = 0; i < pages.size(); ++i) {
      digests[i] = digest_of(reinterpret_cast<const void*>(pages[i].start.value), pages[i].size.value, key_);
    }
    return {};
  }
  Status fill_blank(std::span<const AddressRange>) override { return fail(Code::unsupported, "no blank memory"); }
  Status count_blank(std::span<const AddressRange>, std::span<std::uint64_t>) override {
    return fail(Code::unsupported, "no blank memory");
  }
  const DigestKey& digest_key() const noexcept override { return key_; }
  Status finish_copies() override {
    if (stuck) return fail(Code::driver, "the device does not answer");
    for (const auto& copy : pending_) std::memcpy(copy.to, copy.from, copy.size);
    pending_.clear();
    return {};
  }
  Status synchronise() override { return finish_copies(); }
  Status register_host(void* memory, Bytes size) override {
    if (refuses_to_register) return fail(Code::driver, "no");
    const std::lock_guard lock(mutex);  // slabs are made by several threads
    registered[memory] = size.value;
    return {};
  }
  Status unregister_host(void* memory) noexcept override {
    if (refuses_to_unregister) return fail(Code::driver, "no");
    registered.erase(memory);
    return {};
  }
  Result<MemoryInfo> memory_info() override { return MemoryInfo{}; }

  std::mutex mutex;
  std::map<void*, std::size_t> registered;
  bool has_digests = true;
  Bytes copied_out;
  bool refuses_to_register = false;
  bool refuses_to_unregister = false;
  bool stuck = false;
  int copies_left = -1;

 private:
  /// A driver refuses such a copy, also where the memory behind it is registered by itself.
  bool is_torn(const void* host, Bytes size) const {
    const auto after = registered.upper_bound(const_cast<void*>(host));
    if (after == registered.begin()) return false;
    const auto& [start, length] = *std::prev(after);
    const auto offset = static_cast<std::size_t>(static_cast<const char*>(host) - static_cast<const char*>(start));
    return offset < length && offset + size.value > length;
  }

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
class KnownContent {
 public:
  explicit KnownContent(Bytes size, std::uint64_t seed = 1) : bytes_(size.value / 8) {
    for (std::size_t i = 0; i < bytes_.size(); ++i) bytes_[i] = (i + seed) * 0x9e3779b97f4a7c15u;
  }
  AddressRange range() const { return {{reinterpret_cast<std::uintptr_t>(bytes_.data())}, {bytes_.size() * 8}}; }
  bool operator==(const KnownContent&) const = default;
  void clear() { std::fill(bytes_.begin(), bytes_.end(), 0); }
  std::uint8_t* data() { return reinterpret_cast<std::uint8_t*>(bytes_.data()); }
  const std::uint8_t* data() const { return reinterpret_cast<const std::uint8_t*>(bytes_.data()); }

 private:
  std::vector<std::uint64_t> bytes_;
};

inline SaveRequest request_for(Backend& device, const KnownContent& content, std::unique_ptr<Backup> older = nullptr) {
  return {&device, content.range().start, {content.range()}, std::move(older)};
}

inline Status save(PinnedStore& store, SaveRequest& request) { return store.save({&request, 1}, {}); }

/// The bytes that a save of `content` copies.
inline Bytes copied_by(HostDevice& device, PinnedStore& store, SaveRequest& request) {
  const Bytes before = device.copied_out;
  REQUIRE(save(store, request));
  return device.copied_out - before;
}

inline Status load(HostDevice& device, const KnownContent& content, SaveRequest& request) {
  auto status = request.backup->begin_load(device, content.range().start);
  if (status) status = device.finish_copies();
  return status ? request.backup->check_loaded(device, content.range().start) : status;
}

}  // namespace lowtide

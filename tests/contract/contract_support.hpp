// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/catch.hpp"
#include "tests/contract/backend_under_test.hpp"

namespace lowtide::test {

using Bytewise = std::vector<std::uint8_t>;

/// Some memory mapped at an address of its own, and its end in the right order.
class MappedMemory {
 public:
  MappedMemory(Backend& its_backend, std::uint64_t granules) : backend(its_backend) {
    const Bytes size = backend.capabilities().granularity * granules;
    const auto start = backend.reserve(size);
    REQUIRE(start);
    range = {*start, size};
  }
  MappedMemory(const MappedMemory&) = delete;
  MappedMemory& operator=(const MappedMemory&) = delete;
  ~MappedMemory() {
    if (physical.value != 0) take_away();
    CHECK(backend.release_reservation(range));
  }
  /// Maps what was created, for the device.
  void furnish_with(const Result<PhysicalId>& created) {
    REQUIRE(created);
    physical = *created;
    REQUIRE(backend.map(range, physical));
    REQUIRE(backend.set_access(range, {}));
  }
  void take_away() {
    CHECK(backend.synchronise());
    CHECK(backend.unmap(range));
    CHECK(backend.release(std::exchange(physical, {})));
    if (backend.capabilities().reserves_each) CHECK(backend.keep_address(range));
  }
  AddressRange part(Bytes offset, Bytes size) const { return {range.start + offset, size}; }

  Backend& backend;
  AddressRange range{};
  PhysicalId physical{};
};

/// Memory that is mapped nowhere.
struct UnmappedMemory {
  AddressRange range;
  PhysicalId physical;
};

inline Result<UnmappedMemory> take(Backend& backend, Bytes size) {
  const auto start = backend.reserve(size);
  if (!start) return fail(start.error());
  const AddressRange range{*start, size};
  const auto physical = backend.create(range);
  if (physical) return UnmappedMemory{range, *physical};
  CHECK(backend.release_reservation(range));
  return fail(physical.error());
}

inline void give_back(Backend& backend, const UnmappedMemory& memory) {
  CHECK(backend.release(memory.physical));
  CHECK(backend.release_reservation(memory.range));
}

/// Device memory.
class Memory : public MappedMemory {
 public:
  Memory(Backend& its_backend, std::uint64_t granules) : MappedMemory(its_backend, granules) { furnish(); }
  void furnish() { furnish_with(backend.create(range)); }
};

inline Bytewise pattern(std::size_t size, std::uint64_t seed) {
  Bytewise bytes(size);
  for (std::size_t i = 0; i < size; ++i)
    bytes[i] = static_cast<std::uint8_t>((i * 131 + (i >> 8) * 7 + seed * 29) ^ seed);
  return bytes;
}

inline void write(Backend& backend, AddressRange range, const Bytewise& bytes) {
  REQUIRE(bytes.size() == range.size.value);
  REQUIRE(backend.copy_in(range, bytes.data()));
  REQUIRE(backend.finish_copies());
}

inline Bytewise read(Backend& backend, AddressRange range) {
  Bytewise bytes(range.size.value);
  REQUIRE(backend.copy_out(bytes.data(), range));
  REQUIRE(backend.finish_copies());
  return bytes;
}

/// Runs `check` for every backend that this machine has, as a section of its own, and looks that nothing is left.
inline void for_each_backend(const std::function<void(BackendUnderTest&)>& check) {
  for (const auto& each : backend_cases()) {
    DYNAMIC_SECTION(each.name) {
      const auto subject = each.make();
      if (!subject) return;
      const auto before = subject->held();
      check(*subject);
      CHECK(subject->held() == before);
      CHECK(subject->current_context() == ContextId{});
    }
  }
}

/// The same for those that map memory behind addresses of their own: it can be mapped elsewhere, and outlives contexts.
inline void for_each_mapping_backend(const std::function<void(BackendUnderTest&)>& check) {
  for_each_backend([&](BackendUnderTest& subject) {
    if (std::string_view(subject.backend().name()) != "recreate") check(subject);
  });
}

}  // namespace lowtide::test

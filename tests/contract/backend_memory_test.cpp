// SPDX-License-Identifier: Apache-2.0
// What allocator/core/backend.hpp promises of addresses, physical memory and bytes, asked of every backend.
#include <algorithm>
#include <cstring>

#include "tests/contract/contract_support.hpp"

using namespace lowtide;
using namespace lowtide::test;

TEST_CASE("a backend says what it is") {
  for_each_backend([](BackendUnderTest& subject) {
    Backend& backend = subject.backend();
    CHECK(backend.device() == DeviceId{0});
    CHECK_FALSE(backend.device_name().empty());
    CHECK(std::strlen(backend.name()) > 0);
    CHECK_FALSE(backend.reason().empty());
    const Bytes granule = backend.capabilities().granularity;
    CHECK(granule.value > 0);
    CHECK((granule.value & (granule.value - 1)) == 0);
  });
}

TEST_CASE("a reservation is aligned to the granularity and costs no device memory") {
  for_each_mapping_backend([](BackendUnderTest& subject) {
    Backend& backend = subject.backend();
    const Bytes granule = backend.capabilities().granularity;
    const Bytes size = granule * 3;
    const auto free_before = backend.memory_info()->free;
    const auto start = backend.reserve(size);
    REQUIRE(start);
    CHECK(start->value % granule.value == 0);
    if (subject.may_be_filled()) CHECK(backend.memory_info()->free == free_before);
    REQUIRE(backend.release_reservation({*start, size}));
  });
}

TEST_CASE("an arena far larger than the device can be reserved") {
  for_each_mapping_backend([](BackendUnderTest& subject) {
    Backend& backend = subject.backend();
    const Bytes size = round_up(backend.memory_info()->total * 2, backend.capabilities().granularity);
    const auto start = backend.reserve(size);
    REQUIRE(start);
    REQUIRE(backend.release_reservation({*start, size}));
  });
}

TEST_CASE("bytes copied in come out again, whatever their size and alignment") {
  for_each_backend([](BackendUnderTest& subject) {
    Backend& backend = subject.backend();
    const Memory memory(backend, 2);
    for (const std::size_t size : {1u, 3u, 511u, 4097u, 1u << 20, (1u << 20) + 13}) {
      for (const std::uint64_t offset : {0u, 1u, 513u, 4095u}) {
        const auto bytes = pattern(size, offset + size);
        const auto range = memory.part({offset}, {size});
        write(backend, range, bytes);
        REQUIRE(read(backend, range) == bytes);
      }
    }
    // Across the border of two granules, and the last byte.
    const auto border = memory.part({backend.capabilities().granularity.value - 7}, {15});
    write(backend, border, pattern(15, 3));
    REQUIRE(read(backend, border) == pattern(15, 3));
    const auto last = memory.part({memory.range.size.value - 1}, {1});
    write(backend, last, {42});
    REQUIRE(read(backend, last) == Bytewise{42});
  });
}

TEST_CASE("a copy touches nothing beside its range") {
  for_each_backend([](BackendUnderTest& subject) {
    Backend& backend = subject.backend();
    const Memory memory(backend, 1);
    write(backend, memory.part({}, {64}), Bytewise(64, 1));
    write(backend, memory.part({11}, {13}), Bytewise(13, 2));
    Bytewise expected(64, 1);
    std::fill_n(expected.begin() + 11, 13, std::uint8_t{2});
    CHECK(read(backend, memory.part({}, {64})) == expected);
  });
}

TEST_CASE("a fill writes every byte of its range and no other") {
  for_each_backend([](BackendUnderTest& subject) {
    Backend& backend = subject.backend();
    const Memory memory(backend, 1);
    write(backend, memory.part({}, {4096}), Bytewise(4096, 9));
    REQUIRE(backend.fill(memory.part({5}, {1001}), 0xcd));
    REQUIRE(backend.finish_copies());
    Bytewise expected(4096, 9);
    std::fill_n(expected.begin() + 5, 1001, std::uint8_t{0xcd});
    CHECK(read(backend, memory.part({}, {4096})) == expected);
  });
}

TEST_CASE("copies that were started in order take effect in order") {
  for_each_backend([](BackendUnderTest& subject) {
    Backend& backend = subject.backend();
    const Memory memory(backend, 1);
    const auto first = pattern(memory.range.size.value, 1);
    Bytewise copied(first.size());
    REQUIRE(backend.fill(memory.range, 0));
    REQUIRE(backend.copy_in(memory.range, first.data()));
    REQUIRE(backend.copy_out(copied.data(), memory.range));
    REQUIRE(backend.finish_copies());
    CHECK(copied == first);
  });
}

TEST_CASE("memory leaves and other memory comes behind the same address") {
  for_each_backend([](BackendUnderTest& subject) {
    Backend& backend = subject.backend();
    Memory memory(backend, 2);
    const auto bytes = pattern(memory.range.size.value, 5);
    write(backend, memory.range, bytes);
    const auto saved = read(backend, memory.range);
    memory.take_away();
    memory.furnish();
    write(backend, memory.range, saved);
    CHECK(read(backend, memory.range) == bytes);
  });
}

TEST_CASE("bytes survive being mapped anew with the same memory") {
  for_each_mapping_backend([](BackendUnderTest& subject) {
    Backend& backend = subject.backend();
    const Memory memory(backend, 1);
    const auto bytes = pattern(memory.range.size.value, 6);
    write(backend, memory.range, bytes);
    REQUIRE(backend.unmap(memory.range));
    REQUIRE(backend.map(memory.range, memory.physical));
    REQUIRE(backend.set_access(memory.range, {}));
    CHECK(read(backend, memory.range) == bytes);
  });
}

TEST_CASE("free memory falls by what is created and rises by what is released") {
  for_each_backend([](BackendUnderTest& subject) {
    Backend& backend = subject.backend();
    const auto info = backend.memory_info();
    REQUIRE(info);
    CHECK(info->free <= info->total);
    if (!subject.may_be_filled()) return;  // others may use a real device meanwhile
    Memory memory(backend, 4);
    CHECK(backend.memory_info()->free == info->free - memory.range.size);
    memory.take_away();
    CHECK(backend.memory_info()->free == info->free);
    memory.furnish();
  });
}

TEST_CASE("several mappings are unmapped and given access in one call") {
  for_each_mapping_backend([](BackendUnderTest& subject) {
    Backend& backend = subject.backend();
    const Bytes granule = backend.capabilities().granularity;
    const auto start = backend.reserve(granule * 2);
    REQUIRE(start);
    const AddressRange both{*start, granule * 2};
    const AddressRange left{*start, granule};
    const AddressRange right{left.end(), granule};
    const auto first = backend.create(left);
    const auto second = backend.create(right);
    REQUIRE((first && second));
    REQUIRE(backend.map(left, *first));
    REQUIRE(backend.map(right, *second));
    REQUIRE(backend.set_access(both, {}));
    const auto bytes = pattern(both.size.value, 8);
    write(backend, both, bytes);
    CHECK(read(backend, both) == bytes);
    REQUIRE(backend.unmap(both));
    REQUIRE(backend.release(*first));
    REQUIRE(backend.release(*second));
    REQUIRE(backend.release_reservation(both));
  });
}

TEST_CASE("a full device answers so and nothing is lost") {
  for_each_backend([](BackendUnderTest& subject) {
    Backend& backend = subject.backend();
    const auto info = backend.memory_info();
    REQUIRE(info);
    const Bytes granule = backend.capabilities().granularity;
    const auto too_much = take(backend, round_up(info->total, granule) + granule);
    REQUIRE_FALSE(too_much);
    CHECK(too_much.error().code() == Code::device_memory);
    CHECK(std::strlen(too_much.error().call()) > 0);
    if (!subject.may_be_filled()) return;
    const auto all = take(backend, {info->free.value / granule.value * granule.value});
    REQUIRE(all);
    const auto more = take(backend, granule);
    REQUIRE_FALSE(more);
    CHECK(more.error().code() == Code::device_memory);
    // What a pause needs works all the same.
    REQUIRE(backend.synchronise());
    give_back(backend, *all);
    CHECK(backend.memory_info()->free == info->free);
  });
}

TEST_CASE("what the driver refuses is an error with its name and number, and changes nothing") {
  for_each_mapping_backend([](BackendUnderTest& subject) {
    Backend& backend = subject.backend();
    const Memory memory(backend, 1);
    const auto bytes = pattern(100, 4);
    write(backend, memory.part({}, {100}), bytes);
    const auto mapped_twice = backend.map(memory.range, memory.physical);
    REQUIRE_FALSE(mapped_twice);
    CHECK(mapped_twice.error().code() == Code::driver);
    CHECK(mapped_twice.error().native() != 0);
    CHECK(std::string(mapped_twice.error().message()).find(mapped_twice.error().call()) == 0);
    CHECK(read(backend, memory.part({}, {100})) == bytes);
  });
}

namespace {

void for_each_recreate(const std::function<void(BackendUnderTest&)>& check) {
  for_each_backend([&](BackendUnderTest& subject) {
    if (std::string_view(subject.backend().name()) == "recreate") check(subject);
  });
}

}  // namespace

TEST_CASE("without mappings a reservation is memory, and the same place comes back in the order of its making") {
  for_each_recreate([](BackendUnderTest& subject) {
    Backend& backend = subject.backend();
    const Bytes granule = backend.capabilities().granularity;
    const auto free_before = backend.memory_info()->free;
    std::vector<UnmappedMemory> taken;
    for (const std::uint64_t granules : {1u, 3u, 1u, 2u, 3u, 1u})
      taken.push_back(take(backend, granule * granules).value());
    if (subject.may_be_filled()) CHECK(backend.memory_info()->free == free_before - granule * 11);
    for (const auto& memory : taken) {
      REQUIRE(backend.unmap(memory.range));
      REQUIRE(backend.release(memory.physical));
      REQUIRE(backend.keep_address(memory.range));
    }
    if (subject.may_be_filled()) CHECK(backend.memory_info()->free == free_before);
    for (const auto& memory : taken) {
      const auto again = backend.create(memory.range);
      REQUIRE(again);
      const auto bytes = pattern(1000, memory.range.start.value);
      REQUIRE(backend.map(memory.range, *again));
      write(backend, {memory.range.start, {bytes.size()}}, bytes);
      CHECK(read(backend, {memory.range.start, {bytes.size()}}) == bytes);
    }
    REQUIRE(backend.finish_copies());
    for (const auto& memory : taken) give_back(backend, memory);
  });
}

TEST_CASE("memory that was created for one place cannot be mapped at another") {
  for_each_recreate([](BackendUnderTest& subject) {
    Backend& backend = subject.backend();
    const auto one = take(backend, backend.capabilities().granularity).value();
    const auto other = take(backend, backend.capabilities().granularity).value();
    CHECK_FALSE(backend.map(other.range, one.physical));
    give_back(backend, one);
    give_back(backend, other);
  });
}

// SPDX-License-Identifier: Apache-2.0
// What allocator/core/backend.hpp promises of addresses, physical memory and bytes, asked of every backend.
#include <cstring>

#include "backends/portable/contract.hpp"
#include "tests/contract/contract_support.hpp"

using namespace lowtide;
using namespace lowtide::test;

TEST_CASE("the core of the contract, which lowtide doctor --selftest asks too") {
  for_each_backend([](BackendUnderTest& subject) {
    CHECK(subject.backend().device() == DeviceId{0});
    for (const auto& [name, status] : portable::check_contract(subject.backend())) {
      INFO(name << ": " << (status ? "" : status.error().message()));
      CHECK(status.has_value());
    }
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
    const Bytes step = backend.capabilities().extent_step;
    const auto free_before = backend.memory_info()->free;
    std::vector<UnmappedMemory> taken;
    for (const std::uint64_t steps : {1u, 3u, 1u, 2u, 3u, 1u}) taken.push_back(take(backend, step * steps).value());
    if (subject.may_be_filled()) CHECK(backend.memory_info()->free == free_before - step * 11);
    for (const auto& memory : taken) {
      REQUIRE(backend.unmap(memory.range));
      REQUIRE(backend.release(memory.physical));
      REQUIRE(backend.keep_address(memory.range));
    }
    if (subject.may_be_filled()) CHECK(backend.memory_info()->free == free_before);
    for (const auto& memory : taken) {
      const auto again = backend.create(memory.range);
      INFO((again ? "" : again.error().message()));
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

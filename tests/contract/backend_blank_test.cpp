// SPDX-License-Identifier: Apache-2.0
// What allocator/core/backend.hpp promises of blank memory, asked of every backend: the device finds what the host
// finds, and where it cannot, the host does.
#include <array>
#include <random>

#include "allocator/core/blank_memory.hpp"
#include "tests/contract/contract_support.hpp"

using namespace lowtide;
using namespace lowtide::test;

namespace {

Bytewise bytes_of(Backend& backend, AddressRange range) {
  Bytewise bytes(range.size.value);
  REQUIRE(backend.copy_out(bytes.data(), range));
  REQUIRE(backend.finish_copies());
  return bytes;
}

/// What the host finds.
std::vector<AddressRange> expected(Backend& backend, const std::vector<AddressRange>& ranges) {
  std::vector<AddressRange> found;
  for (const AddressRange& range : ranges) {
    const auto bytes = bytes_of(backend, range);
    for_each_blank_run(bytes.data(), bytes.size(), range.start.value, [&](std::size_t offset, std::size_t size) {
      found.push_back({range.start + Bytes{offset}, {size}});
    });
  }
  return found;
}

}  // namespace

TEST_CASE("blank memory is filled and found to the byte, and nothing beside it is touched") {
  for_each_backend([](BackendUnderTest& subject) {
    Backend& backend = subject.backend();
    const Memory memory(backend, 4);
    const Bytewise before(memory.range.size.value, 0x5a);
    write(backend, memory.range, before);
    const std::vector<AddressRange> ranges{
        memory.part(Bytes{0}, Bytes{1}),         memory.part(Bytes{512}, Bytes{7}),
        memory.part(Bytes{1024}, Bytes{4097}),   memory.part(Bytes{8192}, digest_page + Bytes{3}),
        memory.part(3_MiB, digest_page + 1_MiB), memory.part(7_MiB + Bytes{8}, Bytes{100'003})};
    REQUIRE(fill_blank(backend, ranges));
    const auto whole = find_blank(backend, ranges);
    REQUIRE(whole);
    CHECK(*whole == ranges);
    auto bytes = bytes_of(backend, memory.range);
    for (const AddressRange& range : ranges) {
      std::fill_n(bytes.begin() + static_cast<std::ptrdiff_t>((range.start - memory.range.start).value),
                  range.size.value, std::uint8_t{0x5a});
    }
    CHECK(bytes == before);
  });
}

TEST_CASE("the device finds what was not written as the host does, wherever the writes were") {
  for_each_backend([](BackendUnderTest& subject) {
    Backend& backend = subject.backend();
    const Memory memory(backend, 4);
    std::mt19937_64 random(3);
    const std::vector<AddressRange> ranges{memory.part(Bytes{0}, 3_MiB + Bytes{13}),
                                           memory.part(4_MiB + Bytes{8}, 2_MiB + Bytes{5})};
    REQUIRE(fill_blank(backend, ranges));
    for (int i = 0; i < 40; ++i) {
      const AddressRange& range = ranges[random() % 2];
      const Bytes offset{random() % (range.size.value - 64)};
      const Bytes size{i % 4 == 0 ? std::min<std::uint64_t>(random() % 300'000, (range.size - offset).value)
                                  : random() % 64};
      write(backend, {range.start + offset, size}, Bytewise(size.value, static_cast<std::uint8_t>(i)));
    }
    write(backend, {DeviceAddress{ranges[0].end().value - 20}, Bytes{20}}, Bytewise(20, 1));
    const auto found = find_blank(backend, ranges);
    REQUIRE(found);
    CHECK(*found == expected(backend, ranges));
  });
}

TEST_CASE("memory that was written everywhere, or that is blank by address only, is not blank") {
  for_each_backend([](BackendUnderTest& subject) {
    Backend& backend = subject.backend();
    const Memory memory(backend, 2);
    const auto first = memory.part(Bytes{0}, 1_MiB);
    const auto second = memory.part(2_MiB, 1_MiB);
    REQUIRE(fill_blank(backend, std::array{first, second}));
    REQUIRE(backend.copy_within(second, first.start));
    REQUIRE(backend.finish_copies());
    const auto found = find_blank(backend, std::array{first, second});
    REQUIRE(found);
    CHECK(*found == std::vector{first});
  });
}

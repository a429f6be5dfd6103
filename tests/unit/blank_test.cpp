// SPDX-License-Identifier: Apache-2.0
#include "allocator/base/blank.hpp"

#include <utility>
#include <vector>

#include "tests/catch.hpp"

using namespace lowtide;

namespace {

using Runs = std::vector<std::pair<std::size_t, std::size_t>>;

struct Blank {
  explicit Blank(std::size_t size, std::uint64_t its_address = 0x7000'0000'0200) : address(its_address), bytes(size) {
    fill_blank(bytes.data(), size, address);
  }
  void write(std::size_t offset, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) bytes[offset + i] = static_cast<unsigned char>(~bytes[offset + i]);
  }
  Runs runs() const {
    Runs found;
    for_each_blank_run(bytes.data(), bytes.size(), address,
                       [&](std::size_t offset, std::size_t size) { found.emplace_back(offset, size); });
    return found;
  }
  std::uint64_t address;
  std::vector<unsigned char> bytes;
};

}  // namespace

TEST_CASE("what was not written is found to the byte, at any size") {
  for (std::size_t size = 1; size < 70; ++size) {
    CAPTURE(size);
    CHECK(Blank(size).runs() == Runs{{0, size}});
  }
  CHECK(Blank(0).runs().empty());
}

TEST_CASE("a word that was written in part counts as written") {
  Blank blank(64);
  blank.write(17, 1);
  blank.write(40, 8);
  CHECK(blank.runs() == Runs{{0, 16}, {24, 16}, {48, 16}});
  CHECK(count_blank(blank.bytes.data(), 64, blank.address) == 48);
}

TEST_CASE("the rest of a word at the end is not blank by chance: the word before it decides") {
  Blank blank(27);
  blank.write(16, 8);
  CHECK(blank.runs() == Runs{{0, 16}});
  Blank rest_written(27);
  rest_written.write(25, 1);
  CHECK(rest_written.runs() == Runs{{0, 24}});
}

TEST_CASE("blank memory that was copied to another address is data there") {
  const Blank blank(4096);
  CHECK(count_blank(blank.bytes.data(), 4096, blank.address) == 4096);
  CHECK(count_blank(blank.bytes.data(), 4096, blank.address + 4096) == 0);
  CHECK(count_blank(blank.bytes.data() + 8, 4088, blank.address) == 0);
}

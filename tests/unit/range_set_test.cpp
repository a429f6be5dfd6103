// SPDX-License-Identifier: Apache-2.0
#include "allocator/core/range_set.hpp"

#include <random>

#include "tests/catch.hpp"

using namespace lowtide;

TEST_CASE("ranges that touch or overlap become one, whatever the order in which they come") {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    std::vector<bool> reference(64, false);
    RangeSet set;
    for (int i = 0; i < 12; ++i) {
      const auto start = random() % 60;
      const auto size = random() % (64 - start);
      set.add(Bytes{start}, Bytes{size});
      std::fill_n(reference.begin() + start, size, true);
    }
    std::vector<bool> seen(64, false);
    Bytes before{0};
    bool first = true;
    for (const auto& range : set.ranges()) {
      CHECK((first || range.start > before));
      first = false;
      before = range.end();
      std::fill_n(seen.begin() + static_cast<std::ptrdiff_t>(range.start.value), range.size.value, true);
    }
    CHECK(seen == reference);
    CHECK(set.bytes().value == static_cast<std::uint64_t>(std::count(reference.begin(), reference.end(), true)));
    const bool all =
        std::all_of(reference.begin() + 3, reference.begin() + 9, [](bool set_there) { return set_there; });
    CHECK(set.covers(Bytes{3}, Bytes{6}) == all);
  }
}

// SPDX-License-Identifier: Apache-2.0
#include "allocator/core/slot_map.hpp"

#include <random>
#include <vector>

#include "tests/catch.hpp"

using namespace lowtide;

namespace {

constexpr DeviceAddress base{0x7000'0000};

/// A byte per unit: used by which slot, or free.
class NaiveMap {
 public:
  explicit NaiveMap(std::size_t units) : owner_(units, 0) {}

  bool is_free(std::size_t start, std::size_t count) const {
    for (std::size_t i = start; i < start + count; ++i) {
      if (owner_.at(i) != 0) return false;
    }
    return true;
  }
  void take(std::size_t start, std::size_t count, int slot) {
    for (std::size_t i = start; i < start + count; ++i) owner_.at(i) = slot;
  }
  std::size_t largest_gap() const {
    std::size_t largest = 0;
    std::size_t run = 0;
    for (const int owner : owner_) {
      run = owner == 0 ? run + 1 : 0;
      largest = std::max(largest, run);
    }
    return largest;
  }
  std::size_t free_units() const { return static_cast<std::size_t>(std::count(owner_.begin(), owner_.end(), 0)); }

 private:
  std::vector<int> owner_;
};

}  // namespace

TEST_CASE("slots do not overlap, and a gap that is large enough is found") {
  constexpr std::size_t units = 97;
  std::mt19937 random(7);
  SlotMap map({base, {units}});
  NaiveMap naive(units);
  std::vector<AddressRange> taken;
  for (int step = 1; step < 20'000; ++step) {
    if (random() % 2 == 0 || taken.empty()) {
      const Bytes size{1 + random() % 12};
      const std::size_t at = random() % (units - size.value + 1);
      std::optional<AddressRange> range;
      if (random() % 4 == 0 && naive.is_free(at, size.value)) {
        range = AddressRange{base + Bytes{at}, size};
        map.take_at(*range);
      } else {
        range = map.take(size);
        REQUIRE(range.has_value() == (naive.largest_gap() >= size.value));
      }
      if (!range) continue;
      REQUIRE(range->size == size);
      const auto start = (range->start - base).value;
      REQUIRE(naive.is_free(start, range->size.value));
      naive.take(start, range->size.value, step);
      taken.push_back(*range);
    } else {
      std::swap(taken[random() % taken.size()], taken.back());
      naive.take((taken.back().start - base).value, taken.back().size.value, 0);
      map.give_back(taken.back().start);
      taken.pop_back();
    }
    REQUIRE(map.free_bytes().value == naive.free_units());
  }
}

TEST_CASE("what was given back joins its neighbours") {
  SlotMap map({base, {30}});
  const auto first = map.take({10});
  const auto second = map.take({10});
  const auto third = map.take({10});
  REQUIRE((first && second && third));
  CHECK_FALSE(map.take({1}));
  map.give_back(first->start);
  map.give_back(third->start);
  CHECK_FALSE(map.take({11}));
  map.give_back(second->start);
  CHECK(map.take({30}));
}

TEST_CASE("a run of slots is placed in order") {
  SlotMap map({base, {100}});
  for (std::uint64_t i = 0; i < 10; ++i) CHECK(map.take({10})->start == base + Bytes{i * 10});
}

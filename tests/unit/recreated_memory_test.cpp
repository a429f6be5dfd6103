// SPDX-License-Identifier: Apache-2.0
// Addresses that come back from drivers that ask the host for them, each in its way, beside other memory of theirs.
#include "backends/portable/recreated_memory.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <functional>
#include <map>
#include <new>
#include <random>
#include <vector>

#include "backends/portable/host_gaps.hpp"
#include "tests/catch.hpp"
#include "tests/contract/failing_new.hpp"
#include "tests/sanitized.hpp"

using namespace lowtide;
using lowtide::portable::RecreatedMemory;

namespace {

constexpr std::uint64_t page = (4_KiB).value;
constexpr std::uint64_t huge_page = (2_MiB).value;

struct Habits {
  const char* name;
  std::uint64_t alignment;      ///< of what the driver makes of the host's answer
  bool has_huge_pages = false;  ///< the host aligns large mappings, as Linux 6.8 does
};

constexpr Habits all_habits[] = {
    {"a driver that aligns to 32 MiB", (32_MiB).value},
    {"a driver that aligns to 2 MiB", (2_MiB).value},
    {"a driver that aligns to 32 MiB, huge pages", (32_MiB).value, true},
    {"a driver that aligns to 2 MiB, huge pages", (2_MiB).value, true},
};

std::uint64_t round_up_to(std::uint64_t value, std::uint64_t unit) { return (value + unit - 1) / unit * unit; }

void drop(std::uint64_t start, std::uint64_t end) {
  if (end > start) REQUIRE(::munmap(reinterpret_cast<void*>(start), end - start) == 0);
}

/// Device memory that is nothing but addresses of the host's.
class Driver final : public PlainMemory {
 public:
  explicit Driver(const Habits& habits) : habits_(habits) {}
  ~Driver() override {
    for (const auto& [start, size] : live_) drop(start, start + size);
  }

  Result<DeviceAddress> allocate(Bytes size, ContextId) override {
    if (meanwhile) meanwhile();
    const auto asked = size.value + habits_.alignment - page;
    const auto from = map(asked);
    const auto start = round_up_to(from, habits_.alignment);
    drop(from, start);
    drop(start + size.value, from + asked);
    live_[start] = size.value;
    return DeviceAddress{start};
  }
  Status free(DeviceAddress address, ContextId) override {
    const auto found = live_.find(address.value);
    REQUIRE(found != live_.end());
    drop(found->first, found->first + found->second);
    live_.erase(found);
    return {};
  }
  bool begins_at(DeviceAddress address) override { return live_.count(address.value) != 0; }

  std::function<void()> meanwhile;  ///< what another thread does before the host is asked

 private:
  std::uint64_t map(std::uint64_t size) const {
    const auto asked = habits_.has_huge_pages ? size + huge_page : size;
    void* const got = ::mmap(nullptr, asked, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    REQUIRE(got != MAP_FAILED);
    const auto from = reinterpret_cast<std::uint64_t>(got);
    if (!habits_.has_huge_pages) return from;
    const auto aligned = from % huge_page == 0 ? from + huge_page : round_up_to(from, huge_page);
    drop(from, aligned);
    drop(aligned + size, from + asked);
    return aligned;
  }

  const Habits habits_;
  std::map<std::uint64_t, std::uint64_t> live_;
};

/// A mapping of another thread.
class Neighbour {
 public:
  Neighbour() = default;
  Neighbour(Bytes size, int protection, std::uint64_t at = 0) : size_(size.value) {
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | (at == 0 ? 0 : MAP_FIXED_NOREPLACE);
    start_ = ::mmap(reinterpret_cast<void*>(at), size_, protection, flags, -1, 0);
  }
  Neighbour(Neighbour&& other) noexcept : start_(std::exchange(other.start_, MAP_FAILED)), size_(other.size_) {}
  Neighbour& operator=(Neighbour&& other) noexcept {
    std::swap(start_, other.start_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~Neighbour() {
    if (*this) ::munmap(start_, size_);
  }
  explicit operator bool() const { return start_ != MAP_FAILED; }
  std::uint64_t start() const { return reinterpret_cast<std::uint64_t>(start_); }

 private:
  void* start_ = MAP_FAILED;
  std::uint64_t size_ = 0;
};

/// Mappings of a page with a page free after each, until there are `most` or the host allows no more.
std::vector<Neighbour> many_neighbours(std::size_t most) {
  std::vector<Neighbour> all;
  all.reserve(most);
  const auto start = Neighbour(Bytes{2 * page * most}, PROT_NONE).start();
  for (std::size_t i = 0; i < most; ++i) {
    all.emplace_back(Bytes{page}, PROT_READ, start + 2 * page * i);
    if (all.back()) continue;
    all.pop_back();
    return all;
  }
  return all;
}

/// How many mappings a process may have; nothing where filling them would take a test too long, or the
/// sanitizer, which ends the process, needs some itself.
std::size_t most_mappings() {
  std::size_t most = 0;
  std::ifstream("/proc/sys/vm/max_map_count") >> most;
  return most <= 200'000 && !test::sanitized ? most : 0;
}

/// Device memory at addresses that the driver has for itself, the lowest first.
class HoardingDriver final : public PlainMemory {
 public:
  static constexpr Bytes size = 32_MiB;

  Result<DeviceAddress> allocate(Bytes, ContextId) override {
    const auto place = std::find(used_.begin(), used_.end(), false);
    if (place == used_.end()) return fail(Code::device_memory, "");
    *place = true;
    return DeviceAddress{all_.start() + size.value * static_cast<std::uint64_t>(place - used_.begin())};
  }
  Status free(DeviceAddress address, ContextId) override {
    used_.at((address.value - all_.start()) / size.value) = false;
    return {};
  }
  bool begins_at(DeviceAddress) override { return false; }
  auto used() const { return std::count(used_.begin(), used_.end(), true); }

 private:
  std::array<bool, 16> used_{};
  Neighbour all_{size * 16, PROT_NONE};
};

/// Blocks that park, among others that come and go.
class Stage {
 public:
  explicit Stage(const Habits& habits) : driver(habits) {}

  void add(Bytes size) {
    const auto start = memory.reserve(driver, size, {});
    REQUIRE(start);
    blocks.push_back({*start, size});
    REQUIRE(memory.create(blocks.back()));
  }
  void add_other(Bytes size) { others.push_back(*driver.allocate(size, {})); }
  void remove_other() {
    if (others.empty()) return;
    const auto index = random() % others.size();
    REQUIRE(driver.free(others[index], {}));
    others.erase(others.begin() + static_cast<std::ptrdiff_t>(index));
  }
  void park(const AddressRange& block) {
    REQUIRE(memory.free(block.start));
    memory.keep_address(block);
  }
  void resume(const AddressRange& block) {
    const auto back = memory.create(block);
    INFO((back ? "" : back.error().message()));
    REQUIRE(back);
    REQUIRE(driver.begins_at(block.start));
  }

  Driver driver;
  RecreatedMemory memory;
  std::vector<AddressRange> blocks;
  std::vector<DeviceAddress> others;
  std::minstd_rand random{7};
};

}  // namespace

TEST_CASE("every address comes back, whatever the driver aligns to and whoever else allocates and frees") {
  for (const auto& habits : all_habits) {
    SECTION(habits.name) {
      Stage stage(habits);
      constexpr Bytes sizes[] = {32_MiB, 64_MiB, 64_MiB, 96_MiB, 512_MiB};
      for (int i = 0; i < 40; ++i) {
        stage.add(sizes[stage.random() % std::size(sizes)]);
        stage.add_other(Bytes{(stage.random() % 80 + 1) << 20});
      }
      for (int round = 0; round < 20; ++round) {
        std::vector<AddressRange> parked;
        for (const auto& block : stage.blocks) {
          if (stage.random() % 3 == 0) continue;
          stage.park(block);
          parked.push_back(block);
        }
        for (int i = 0; i < 10; ++i) {
          stage.remove_other();
          stage.add_other(Bytes{(stage.random() % 80 + 1) << 20});
        }
        std::shuffle(parked.begin(), parked.end(), stage.random);
        for (const auto& block : parked) {
          stage.resume(block);
          if (stage.random() % 4 == 0) stage.add_other(1_MiB);
        }
        stage.memory.settle();
      }
    }
  }
}

TEST_CASE("an address whose surroundings others had for a while comes back once they left") {
  for (const auto& habits : all_habits) {
    SECTION(habits.name) {
      Stage stage(habits);
      for (int i = 0; i < 3; ++i) stage.add(32_MiB);
      const auto closed_in = *std::max_element(stage.blocks.begin(), stage.blocks.end(),
                                               [](const auto& a, const auto& b) { return a.start < b.start; });
      for (const auto& block : stage.blocks) stage.park(block);
      Neighbour neighbour;
      stage.driver.meanwhile = [&] {
        if (!neighbour) neighbour = Neighbour(30_MiB, PROT_READ, closed_in.start.value - (30_MiB).value);
      };
      (void)stage.memory.create(closed_in);
      REQUIRE(neighbour);
      stage.memory.settle();
      stage.driver.meanwhile = {};
      neighbour = {};
      for (const auto& block : stage.blocks) {
        if (!stage.driver.begins_at(block.start)) stage.resume(block);
      }
    }
  }
}

TEST_CASE("what another thread maps during a resume lies where there is room for it, not in the place") {
  Stage stage(all_habits[0]);
  const Neighbour above(4_MiB, PROT_NONE);
  Neighbour leaves(4_MiB, PROT_READ);
  const Neighbour below(4_MiB, PROT_NONE);
  stage.add(64_MiB);
  stage.park(stage.blocks[0]);
  leaves = {};
  std::vector<Neighbour> others;
  stage.driver.meanwhile = [&] {
    if (others.empty()) others.emplace_back(3_MiB, PROT_READ);
  };
  stage.resume(stage.blocks[0]);
  CHECK(others.front().start() > stage.blocks[0].end().value);
}

TEST_CASE("a resume takes no mappings for gaps that no block fits in: other threads need them") {
  const auto most = most_mappings();
  if (most == 0) return;
  const auto neighbours = many_neighbours(most * 7 / 10);
  Stage stage(all_habits[0]);
  stage.add(64_MiB);
  stage.park(stage.blocks[0]);
  stage.driver.meanwhile = [] { REQUIRE(Neighbour(1_MiB, PROT_READ | PROT_WRITE | PROT_EXEC)); };
  stage.resume(stage.blocks[0]);
}

TEST_CASE("a place is not lost where the process has all mappings that the host allows") {
  const auto most = most_mappings();
  if (most == 0) return;
  Stage stage(all_habits[0]);
  stage.add(64_MiB);
  stage.add(64_MiB);
  for (const auto& block : stage.blocks) stage.park(block);
  {
    const auto neighbours = many_neighbours(most);
    for (const auto& block : stage.blocks) {
      const auto back = stage.memory.create(block);
      REQUIRE_FALSE(back);
      CHECK(back.error().code() == Code::host_budget);
    }
    stage.memory.settle();
  }
  for (const auto& block : stage.blocks) stage.resume(block);
}

TEST_CASE("a reservation that meets no host memory keeps no memory of the device") {
  HoardingDriver driver;
  RecreatedMemory memory;
  for (int i = 0; i < 4; ++i) {
    const auto start = memory.reserve(driver, driver.size, {});
    REQUIRE(start);
    REQUIRE(memory.create({*start, driver.size}));
    REQUIRE(memory.free(*start));
  }
  for (std::uint64_t nth = 1;; ++nth) {
    INFO("allocation " << nth);
    bool failed = false;
    try {
      const test::FailingNew failing(nth, false);
      const auto start = memory.reserve(driver, driver.size, {});
      REQUIRE(start);
      REQUIRE(memory.release_reservation({*start, driver.size}));
    } catch (const std::bad_alloc&) {
      failed = true;
    }
    memory.give_back_rest();
    CHECK(driver.used() == 0);
    if (!failed) break;
  }
}

TEST_CASE("the room in which heap and stack grow is no gap") {
  const auto gaps = portable::host_gaps(DeviceAddress{page}, Bytes{page});
  CHECK_FALSE(gaps.empty());
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    const DeviceAddress start{std::stoull(line, nullptr, 16)};
    const DeviceAddress end{std::stoull(line.substr(line.find('-') + 1), nullptr, 16)};
    for (const auto& gap : gaps) {
      if (line.ends_with("[heap]")) CHECK(gap.start != end);
      if (line.ends_with("[stack]")) CHECK(gap.end() < start);
    }
  }
}

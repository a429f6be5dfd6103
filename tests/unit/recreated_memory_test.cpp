// SPDX-License-Identifier: Apache-2.0
// Addresses that come back from drivers that ask the host for them, each in its way, beside other memory of theirs.
#include "backends/portable/recreated_memory.hpp"

#include <sys/mman.h>

#include <map>
#include <random>
#include <vector>

#include "tests/catch.hpp"

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

// SPDX-License-Identifier: Apache-2.0
// Memory that is freed by a pause and allocated again: what becomes of addresses that somebody else has meanwhile.
#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <fstream>

#include "tests/catch.hpp"
#include "tests/contract/fault_plans.hpp"
#include "tests/contract/world.hpp"

using namespace lowtide;
using namespace lowtide::test;

namespace {

const cuda::Driver& simulated() { return SimulatedDriver::instance().driver(); }

/// Takes addresses as soon as the driver has freed what was there, before anybody else can.
class Thief {
 public:
  Thief() { thief = this; }
  ~Thief() {
    leave();
    thief = nullptr;
  }
  /// For a driver's table.
  static CUresult free(CUdeviceptr address) {
    const auto result = real_free(address);
    if (result == CUDA_SUCCESS && thief != nullptr) thief->strike();
    return result;
  }
  static inline decltype(cuda::Driver::cuMemFree_v2) real_free = nullptr;

  /// Memory will be there; of whole granules, which the range is rounded to.
  void wants(AddressRange range) {
    const DeviceAddress start{range.start.value - range.start.value % granule.value};
    wanted_.push_back({start, round_up(range.end() - start, granule)});
  }
  bool has_all() const { return wanted_.empty(); }
  void leave() {
    for (const auto& range : taken_) {
      CHECK(simulated().cuMemUnmap(range.start.value, range.size.value) == CUDA_SUCCESS);
      CHECK(simulated().cuMemAddressFree(range.start.value, range.size.value) == CUDA_SUCCESS);
    }
    taken_.clear();
  }

 private:
  static constexpr Bytes granule = 2_MiB;
  static inline Thief* thief = nullptr;

  void strike() {
    std::erase_if(wanted_, [this](const AddressRange& range) {
      const auto size = range.size.value;
      CUdeviceptr got = 0;
      REQUIRE(simulated().cuMemAddressReserve(&got, size, 0, range.start.value, 0) == CUDA_SUCCESS);
      if (got != range.start.value) {  // not free yet
        REQUIRE(simulated().cuMemAddressFree(got, size) == CUDA_SUCCESS);
        return false;
      }
      CUmemAllocationProp properties{};
      properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
      properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
      CUmemGenericAllocationHandle memory{};
      REQUIRE(simulated().cuMemCreate(&memory, size, &properties, 0) == CUDA_SUCCESS);
      REQUIRE(simulated().cuMemMap(got, size, 0, memory, 0) == CUDA_SUCCESS);
      REQUIRE(simulated().cuMemRelease(memory) == CUDA_SUCCESS);
      taken_.push_back(range);
      return true;
    });
  }

  std::vector<AddressRange> wanted_;
  std::vector<AddressRange> taken_;
};

cuda::Driver with_thief(cuda::Driver table) {
  Thief::real_free = std::exchange(table.cuMemFree_v2, &Thief::free);
  return table;
}

class Stage {
 public:
  Stage()
      : driver(simulated()),
        table(with_thief(driver.table())),
        world(table, 1, {}, std::make_unique<DiskCalls>(), recreate_kind) {
    world.blocks.reserve(16);
  }

  /// Parks all, and somebody else gets the addresses of `ranges` meanwhile.
  void pause_and_lose(std::initializer_list<AddressRange> ranges) {
    for (const auto& range : ranges) thief.wants(range);
    REQUIRE(world.pause());
    REQUIRE(thief.has_all());
  }
  void leave() { thief.leave(); }
  void may_move(const char* tag) { world.settings.tags[tag_name(tag)].may_move = true; }
  /// Follows the moves, as the owner of the blocks does.
  void follow(const TransitionReport& report) {
    for (const auto& move : report.moves) {
      const auto block = std::find_if(world.blocks.begin(), world.blocks.end(), [&](const auto& candidate) {
        return candidate.live && candidate.address == move.from && candidate.size == move.size;
      });
      REQUIRE(block != world.blocks.end());
      CHECK(block->tag == move.tag);
      block->address = move.to;
    }
  }

  FaultyDriver driver;
  const cuda::Driver table;
  Thief thief;
  World world;
};

}  // namespace

TEST_CASE("an address that others have refuses the resume, loses nothing, and is had back once they left") {
  Stage stage;
  World& world = stage.world;
  const auto taken = world.add("weights", 66_MiB);
  world.add("weights", 2_MiB);
  world.add("weights", Bytes{1000});
  stage.pause_and_lose({taken.range()});
  for (int attempt = 0; attempt < 2; ++attempt) {
    const auto report = world.resume();
    REQUIRE_FALSE(report);
    CHECK(report.error().code() == Code::moved);
    CHECK(std::string(report.error().message()).find("96.0 MiB") != std::string::npos);
    CHECK(world.parked_blocks() == 3);
    CHECK(world.complaint() == "");
  }
  stage.leave();
  REQUIRE(world.resume());
  CHECK(world.parked_blocks() == 0);
  CHECK(world.complaint() == "");
}

TEST_CASE("a refused resume keeps no memory of the device") {
  Stage stage;
  const auto taken = stage.world.add("weights", 4_MiB);
  stage.world.add("weights", 6_MiB);
  stage.pause_and_lose({taken.range()});
  const auto before = held_now();
  REQUIRE_FALSE(stage.world.resume());
  CHECK(held_now() == before);
}

TEST_CASE("what is held back of blocks that come back elsewhere is put back there") {
  Stage stage;
  World& world = stage.world;
  stage.may_move("weights");
  const TagName weights = tag_name("weights");
  world.settings.tags[weights].pause = Action::discard;
  world.settings.tags[weights].coverage = Coverage::learn;
  const auto taken = world.add("weights", 64_MiB).range();
  world.add("weights", Bytes{70'000});
  stage.pause_and_lose({taken});
  const auto report = world.resume();
  REQUIRE(report);
  REQUIRE(report->moves.size() == 1);
  stage.follow(*report);
  REQUIRE(world.transitions.begin_update(weights, 1));
  for (auto& block : world.blocks) {
    std::fill_n(block.bytes.begin(), 4096, std::uint8_t{7});
    REQUIRE(world.backend().copy_in({block.address, Bytes{4096}}, block.bytes.data()));
    REQUIRE(world.backend().finish_copies());
    block.known = true;
  }
  REQUIRE(world.transitions.commit_update(weights, 1, world.settings));
  CHECK(world.complaint() == "");
  CHECK(world.table.regions().front().residue == 64_MiB + Bytes{70'000 - 2 * 4096});
}

TEST_CASE("blocks whose owner follows come back elsewhere, with their bytes, and are told one by one") {
  Stage stage;
  World& world = stage.world;
  stage.may_move("weights");
  const auto taken = world.add("weights", 64_MiB);
  const auto small = world.add("weights", Bytes{1000});
  world.add("weights", Bytes{70'000});
  world.add("weights", 64_MiB);
  stage.pause_and_lose({taken.range(), small.range()});
  const auto report = world.resume();
  INFO((report ? "" : report.error().message()));
  REQUIRE(report);
  CHECK(report->moves.size() == 3);  // the last has its address
  CHECK_FALSE(world.table.find(taken.address));
  stage.follow(*report);
  CHECK(world.complaint() == "");
  CHECK(world.parked_blocks() == 0);
  // They live on where they are.
  REQUIRE(world.pause());
  stage.leave();
  const auto again = world.resume();
  REQUIRE(again);
  stage.follow(*again);
  CHECK(world.complaint() == "");
}

TEST_CASE("a tag that nobody follows refuses the resume of all, and another that is followed stays where it was") {
  Stage stage;
  World& world = stage.world;
  stage.may_move("kv_cache");
  const auto first = world.add("kv_cache", 4_MiB);
  const auto second = world.add("weights", 4_MiB);
  stage.pause_and_lose({second.range()});
  const auto report = world.resume();
  REQUIRE_FALSE(report);
  CHECK(report.error().code() == Code::moved);
  CHECK(world.parked_blocks() == 2);
  CHECK(world.table.find(first.address));
  CHECK(world.complaint() == "");
  stage.leave();
  const auto back = world.resume();
  REQUIRE(back);
  CHECK(back->moves.empty());
  CHECK(world.complaint() == "");
}

TEST_CASE("a block that is freed while its tag moves is freed where it was and where it went") {
  Stage stage;
  World& world = stage.world;
  stage.may_move("weights");
  auto& stays = world.add("weights", Bytes{3000});
  auto& freed = world.add("weights", Bytes{5000});
  stage.pause_and_lose({stays.range()});
  const auto report = world.transitions.resume(tag_name("weights"), world.settings, [&](const Progress&) {
    if (std::exchange(freed.live, false)) REQUIRE(world.table.free(freed.address) == BlockTable::Freed::done);
  });
  REQUIRE(report);
  stage.follow(*report);
  CHECK(world.complaint() == "");
  CHECK(world.is_resident(stays));
  stage.leave();
}

TEST_CASE("memory of others at the address of a parked block is theirs to free") {
  Stage stage;
  World& world = stage.world;
  auto& parked = world.add("weights", 4_MiB);
  stage.pause_and_lose({parked.range()});
  CHECK(world.table.free(parked.address) == BlockTable::Freed::foreign);
  CHECK(world.complaint() == "");
  stage.leave();
  parked.live = false;
  CHECK(world.table.free(parked.address) == BlockTable::Freed::done);
  CHECK_FALSE(world.table.find(parked.address));
}

TEST_CASE("memory of others that begins inside the place of a parked block is theirs to free") {
  Stage stage;
  World& world = stage.world;
  auto& parked = world.add("weights", 4_MiB);
  const DeviceAddress inside{parked.address.value + (2_MiB).value};
  stage.pause_and_lose({{inside, 2_MiB}});
  CHECK(world.table.free(inside) == BlockTable::Freed::foreign);
  stage.leave();
  CHECK(world.resume());
  CHECK(world.complaint() == "");
  CHECK_FALSE(world.table.free(inside));
}

TEST_CASE("new blocks do not take the addresses of parked ones") {
  Stage stage;
  World& world = stage.world;
  world.add("weights", 4_MiB);
  world.add("weights", 2_MiB);
  REQUIRE(world.pause(tag_name("weights")));
  world.add("other", 4_MiB);
  world.add("other", 2_MiB);
  world.add("other", Bytes{100});
  REQUIRE(world.resume());
  CHECK(world.complaint() == "");
}

TEST_CASE("addresses come back beside memory of others that comes and goes, in whatever order") {
  Stage stage;
  World& world = stage.world;
  const cuda::ContextGuard guard(simulated(), reinterpret_cast<CUcontext>(world.context().value));
  std::vector<CUdeviceptr> others;
  const auto other = [&](Bytes size) {
    REQUIRE(simulated().cuMemAlloc_v2(&others.emplace_back(), size.value) == CUDA_SUCCESS);
  };
  for (const auto size : {64_MiB, 3_MiB, 70_MiB}) {
    world.add("weights", size);
    other(size);
    other(2_MiB);
  }
  world.add("lora", 66_MiB);
  for (const char* first : {"weights", "lora", "weights"}) {
    REQUIRE(world.pause());
    for (std::size_t i = 0; i < others.size(); i += 2) REQUIRE(simulated().cuMemFree_v2(others[i]) == CUDA_SUCCESS);
    for (std::size_t i = 0; i < others.size(); i += 2)
      REQUIRE(simulated().cuMemAlloc_v2(&others[i], (i % 4 == 0 ? 40_MiB : 20_MiB).value) == CUDA_SUCCESS);
    const auto part = world.resume(tag_name(first));
    INFO((part ? "" : part.error().message()));
    REQUIRE(part);
    REQUIRE(world.resume());
    CHECK(world.parked_blocks() == 0);
    CHECK(world.complaint() == "");
  }
  for (const auto each : others) CHECK(simulated().cuMemFree_v2(each) == CUDA_SUCCESS);
}

TEST_CASE("a resume holds no addresses of the process once it is over") {
  const auto held = [] {
    std::ifstream maps("/proc/self/maps");
    std::uint64_t bytes = 0;
    for (std::string line; std::getline(maps, line);) {
      std::uint64_t start = 0;
      std::uint64_t end = 0;
      if (line.find(" ---p ") == std::string::npos) continue;
      REQUIRE(std::sscanf(line.c_str(), "%" SCNx64 "-%" SCNx64, &start, &end) == 2);
      bytes += end - start;
    }
    return bytes;
  };
  Stage stage;
  stage.world.add("weights", 64_MiB);
  stage.world.add("weights", 70_MiB);
  std::uint64_t before = 0;
  for (int i = 0; i < 4; ++i) {
    REQUIRE(stage.world.pause());
    REQUIRE(stage.world.resume());
    if (i == 0) before = held();  // with what the first pause makes and keeps
    CHECK(held() <= before);
  }
  stage.pause_and_lose({stage.world.blocks.front().range()});
  const auto parked = held();
  REQUIRE_FALSE(stage.world.resume());
  CHECK(held() <= parked);
}

TEST_CASE("a resume whose blocks move and whose driver calls fail changes nothing and can be repeated") {
  Stage stage;
  World& world = stage.world;
  stage.may_move("weights");
  const auto taken = world.add("weights", 4_MiB);
  world.add("weights", Bytes{1000});
  world.add("kv_cache", 2_MiB);
  for_each_fault([&](const FaultyDriver::Plan& plan, const std::string& label) {
    INFO("failing: " << label);
    stage.pause_and_lose({{world.blocks.front().address, taken.size}});
    stage.driver.start(plan);
    auto report = world.resume();
    auto calls = stage.driver.stop();
    if (report) stage.follow(*report);
    REQUIRE(world.complaint() == "");
    if (!report) {
      REQUIRE(world.parked_blocks() == 3);
      report = world.resume();
      INFO((report ? "" : report.error().message()));
      REQUIRE(report);
      stage.follow(*report);
    }
    REQUIRE(world.parked_blocks() == 0);
    REQUIRE(world.complaint() == "");
    stage.leave();
    return calls;
  });
}

TEST_CASE("an address that moved is stable in no report") {
  Stage stage;
  stage.world.add("weights", 2_MiB);
  for (const auto& region : stage.world.table.regions()) CHECK_FALSE(region.stable_address);
}

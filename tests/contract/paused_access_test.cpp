// SPDX-License-Identifier: Apache-2.0
// Parked blocks that stay readable at their address, in host memory that takes the place of the device's.
#include <algorithm>
#include <cstring>

#include "tests/catch.hpp"
#include "tests/contract/contract_support.hpp"
#include "tests/contract/world.hpp"

using namespace lowtide;
using namespace lowtide::test;

namespace {

const cuda::Driver& simulated() { return SimulatedDriver::instance().driver(); }

/// Whether the device's copies, its kernels and the host find the block's bytes at its address.
void check_readable(World& world, const World::KnownBlock& block) {
  Backend& backend = world.backend(block.device);
  std::vector<std::uint8_t> copied(block.bytes.size());
  REQUIRE(backend.copy_out(copied.data(), block.range()));
  REQUIRE(backend.finish_copies());
  CHECK(copied == block.bytes);
  const AddressRange page{block.address, std::min(block.size, digest_page)};
  PageDigest digest{};
  REQUIRE(backend.digest({&page, 1}, {&digest, 1}));
  CHECK(digest == digest_of(block.bytes.data(), page.size.value, backend.digest_key()));
}

bool is_there(World& world, const World::KnownBlock& block) {
  return SimulatedDriver::instance().readable_from(static_cast<int>(block.device), block.address.value) &&
         !world.is_resident(block);
}

CUresult create_on_devices_only(CUmemGenericAllocationHandle* handle, std::size_t size,
                                const CUmemAllocationProp* properties, unsigned long long flags) {
  if (properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_NOT_SUPPORTED;
  return simulated().cuMemCreate(handle, size, properties, flags);
}

CUresult no_access_for_the_host(CUdeviceptr address, std::size_t size, const CUmemAccessDesc* access,
                                std::size_t count) {
  const bool host = access[count - 1].location.type != CU_MEM_LOCATION_TYPE_DEVICE;
  return host ? CUDA_ERROR_INVALID_VALUE : simulated().cuMemSetAccess(address, size, access, count);
}

CUresult ignore_access_of_all(CUdeviceptr address, std::size_t size, const CUmemAccessDesc* access, std::size_t count) {
  const bool host = access[count - 1].location.type != CU_MEM_LOCATION_TYPE_DEVICE;
  return host ? CUDA_SUCCESS : simulated().cuMemSetAccess(address, size, access, count);
}

/// All free memory of the device.
class Hog {
 public:
  explicit Hog(Backend& backend) : backend_(backend) {
    const Bytes granule = backend.capabilities().granularity;
    const auto taken = take(backend, {backend.memory_info()->free.value / granule.value * granule.value});
    REQUIRE(taken);
    memory_ = *taken;
    REQUIRE(backend.memory_info()->free < granule);
  }
  Hog(const Hog&) = delete;
  Hog& operator=(const Hog&) = delete;
  ~Hog() { give_back(backend_, memory_); }

 private:
  Backend& backend_;
  UnmappedMemory memory_;
};

}  // namespace

TEST_CASE("parked blocks are read at their address although the device is full, and come back") {
  World world(simulated(), 1);
  world.set_paused_access("lora", PausedAccess::host);
  world.blocks.reserve(4);
  world.add("lora", 7_MiB);
  world.add("lora", Bytes{5000});
  world.add("lora", Bytes{70'001});
  const auto& weights = world.add("weights", 3_MiB);
  const Bytes used{held_now().used_bytes};
  const auto report = world.pause();
  REQUIRE(report);
  CHECK(report->parked == 10_MiB + Bytes{75'001});
  CHECK(held_now().used_bytes + 13 * (1 << 20) <= used.value);
  CHECK(world.backup_bytes() >= 10_MiB);
  for (int round = 0; round < 2; ++round) {
    const Hog hog(world.backend());
    for (const auto& block : world.blocks) {
      if (&block != &weights) check_readable(world, block);
    }
  }
  CHECK_FALSE(is_there(world, weights));
  CHECK(world.complaint() == "");
  REQUIRE(world.resume());
  CHECK(world.complaint() == "");
  CHECK(held_now().used_bytes == used.value);
  CHECK(world.backup_bytes() == Bytes{});
}

TEST_CASE("what the host writes to a parked block is what the device reads and what comes back") {
  World world(simulated(), 1);
  world.set_paused_access("lora", PausedAccess::host);
  auto& block = world.add("lora", 5_MiB);
  REQUIRE(world.pause());
  std::fill(block.bytes.begin() + 1'000'000, block.bytes.begin() + 4'000'000, std::uint8_t{0x5a});
  REQUIRE(world.table.write_backup({block.address + Bytes{1'000'000}, Bytes{3'000'000}}, &block.bytes[1'000'000]));
  check_readable(world, block);
  const auto view = world.table.view_backup(block.address);
  REQUIRE(view);
  REQUIRE(view->size() == block.bytes.size());
  CHECK(std::memcmp(view->data(), block.bytes.data(), view->size()) == 0);
  CHECK(view->data() == reinterpret_cast<const std::byte*>(block.address.value));
  REQUIRE(world.resume());
  CHECK(world.complaint() == "");
}

TEST_CASE("a pause that has no room for readable content in the budget changes nothing") {
  World world(simulated(), 1, {.budget = 4_MiB});
  world.set_paused_access("lora", PausedAccess::host);
  world.add("lora", 6_MiB);
  const Held before = held_now();
  const auto report = world.pause();
  REQUIRE_FALSE(report);
  CHECK(report.error().code() == Code::host_budget);
  CHECK(world.parked_blocks() == 0);
  CHECK(held_now() == before);
  CHECK(world.complaint() == "");
  world.store.set_settings({});
  REQUIRE(world.pause());
  REQUIRE(world.resume());
  CHECK(world.store.budget().held() == 6_MiB);  // kept for the next pause
  CHECK(world.complaint() == "");
}

TEST_CASE("host memory of readable blocks is kept for the next pause, until a trim") {
  World world(simulated(), 1);
  world.set_paused_access("lora", PausedAccess::host);
  world.add("lora", 6_MiB);
  const Held before = held_now();
  REQUIRE(world.pause());
  CHECK(world.retained_bytes() == Bytes{});
  REQUIRE(world.resume());
  CHECK(world.retained_bytes() == 6_MiB);
  const Held kept = held_now();
  CHECK(kept.handles == before.handles + 1);
  CHECK(kept.used_bytes == before.used_bytes);
  world.write(world.blocks.front());
  world.store.set_settings({.budget = Bytes{}});  // no more is to be had, or needed
  REQUIRE(world.pause());
  CHECK(world.complaint() == "");
  REQUIRE(world.transitions.trim());  // not what holds content
  CHECK(world.complaint() == "");
  REQUIRE(world.resume());
  CHECK(world.complaint() == "");
  const auto report = world.transitions.trim();
  REQUIRE(report);
  CHECK(report->given_back == 6_MiB);
  CHECK(held_now() == before);
  CHECK(world.store.budget().held() == Bytes{});
}

TEST_CASE("with nothing retained the host memory of readable blocks goes back at the resume") {
  World world(simulated(), 1, {BackupSettings::Retain::none});
  world.set_paused_access("lora", PausedAccess::host);
  world.add("lora", 6_MiB);
  const Held before = held_now();
  REQUIRE(world.pause());
  REQUIRE(world.resume());
  CHECK(held_now() == before);
  CHECK(world.store.budget().held() == Bytes{});
}

TEST_CASE("on a device that cannot have host memory behind an address the tag is saved as any other") {
  cuda::Driver driver = simulated();
  SECTION("the driver has no such memory") { driver.cuMemCreate = &create_on_devices_only; }
  SECTION("the host cannot be given access") { driver.cuMemSetAccess = &no_access_for_the_host; }
  SECTION("access is promised and not given: to look is no fault") { driver.cuMemSetAccess = &ignore_access_of_all; }
  World world(driver, 1);
  world.set_paused_access("lora", PausedAccess::host);
  const auto& block = world.add("lora", 2_MiB);
  const Held before = held_now();
  REQUIRE(world.pause());
  CHECK(held_now().handles == before.handles - 1);  // nothing is left of the trial
  CHECK_FALSE(is_there(world, block));
  CHECK(world.complaint() == "");
  REQUIRE(world.resume());
  CHECK(world.complaint() == "");
}

TEST_CASE("readable blocks that are freed while parked leave nothing behind") {
  (void)SimulatedDriver::instance();
  World world(simulated(), 1);
  world.set_paused_access("lora", PausedAccess::host);
  const Held before = held_now();
  world.add("lora", 6_MiB);
  world.add("lora", Bytes{300});
  world.add("lora", Bytes{4000});
  REQUIRE(world.pause());
  world.free_all();
  Held after = held_now();
  after.reservations = before.reservations + 1;  // of the arena; the scratch addresses are gone
  CHECK(held_now() == after);
  CHECK(after.handles == before.handles);
  CHECK(after.mappings == before.mappings);
  CHECK(world.backup_bytes() == Bytes{});
  CHECK(world.store.budget().held() == Bytes{});
}

TEST_CASE("readable small blocks keep their bytes beside freed ones, over cycles") {
  World world(simulated(), 1);
  world.set_paused_access("lora", PausedAccess::host);
  for (int i = 0; i < 24; ++i) world.add("lora", 500_KiB);
  for (int round = 0; round < 3; ++round) {
    REQUIRE(world.pause());
    for (std::size_t i = static_cast<std::size_t>(round); i < world.blocks.size(); i += 5) {
      auto& block = world.blocks[i];
      if (std::exchange(block.live, false)) REQUIRE(world.table.free(block.address));
    }
    CHECK(world.complaint() == "");
    REQUIRE(world.resume());
    CHECK(world.complaint() == "");
    world.add("lora", 3_MiB);
  }
}

TEST_CASE("a tag's paused access is what it is at the pause, whatever it was before") {
  World world(simulated(), 1);
  const auto& block = world.add("lora", 3_MiB);
  for (const auto access : {PausedAccess::fault, PausedAccess::host, PausedAccess::fault, PausedAccess::host}) {
    world.set_paused_access("lora", access);
    REQUIRE(world.pause());
    CHECK(is_there(world, block) == (access == PausedAccess::host));
    CHECK(world.complaint() == "");
    REQUIRE(world.resume());
    CHECK(world.complaint() == "");
  }
}

TEST_CASE("a device that becomes a peer reads what is parked already, and what is parked later") {
  World world(simulated(), 2);
  world.set_paused_access("lora", PausedAccess::host);
  const auto& block = world.add("lora", 2_MiB, 0);
  const auto readable = [&] { return SimulatedDriver::instance().readable_from(1, block.address.value); };
  REQUIRE(world.pause());
  CHECK_FALSE(readable());
  REQUIRE(world.table.set_peer(DeviceId{0}, DeviceId{1}, true));
  CHECK(readable());
  CHECK_FALSE(SimulatedDriver::instance().accessible_from(1, block.address.value));
  REQUIRE(world.resume());
  CHECK(SimulatedDriver::instance().accessible_from(1, block.address.value));
  REQUIRE(world.pause());
  CHECK(readable());
  REQUIRE(world.resume());
}

TEST_CASE("a resume of readable blocks is refused while a capture is under way, which it would break") {
  World world(simulated(), 1);
  world.set_paused_access("lora", PausedAccess::host);
  const auto& block = world.add("lora", 2_MiB);
  REQUIRE(world.pause());
  const int stream = 0;
  world.captures.begin();
  world.captures.began(&stream, true);
  const auto report = world.resume();
  REQUIRE_FALSE(report);
  CHECK(report.error().code() == Code::refused);
  CHECK(is_there(world, block));
  (void)world.captures.ended(&stream);
  REQUIRE(world.resume());
  CHECK(world.complaint() == "");
}

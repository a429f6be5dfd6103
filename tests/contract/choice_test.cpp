// SPDX-License-Identifier: Apache-2.0
// The choice of a backend believes what was tried: drivers that have every call and cannot pause are told apart from
// those that can, and neither neighbours nor a full device cost a device its rung.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <utility>

#include "tests/contract/choice_support.hpp"

using namespace lowtide;
using namespace lowtide::test;
using Catch::Matchers::Contains;
using portable::Verdict;

namespace {

/// The device with all of its memory taken, but for `left`.
class Filled {
 public:
  explicit Filled(ContextId context, Bytes left) : guard_(simulated(), reinterpret_cast<CUcontext>(context.value)) {
    std::size_t free = 0;
    std::size_t total = 0;
    REQUIRE(simulated().cuMemGetInfo_v2(&free, &total) == CUDA_SUCCESS);
    REQUIRE(simulated().cuMemAlloc_v2(&block_, free - left.value) == CUDA_SUCCESS);
  }
  Filled(const Filled&) = delete;
  Filled& operator=(const Filled&) = delete;
  ~Filled() { CHECK(simulated().cuMemFree_v2(block_) == CUDA_SUCCESS); }

 private:
  cuda::ContextGuard guard_;
  CUdeviceptr block_ = 0;
};

portable::TrialReport tried(Primary& primary, const cuda::Driver& driver, const char* name) {
  portable::RecreatedMemory memory;
  for (const auto& candidate : cuda_ladder(driver, DeviceId{0}, memory)) {
    if (candidate.name != name) continue;
    const auto backend = candidate.make("test");
    REQUIRE(backend);
    REQUIRE((*backend)->attach(primary.id()));
    return portable::try_backend(**backend, candidate.trial);
  }
  FAIL("no such candidate");
  return {};
}

CUresult always_as_free(std::size_t* free, std::size_t* total) {
  *free = *total = std::size_t{1} << 30;
  return CUDA_SUCCESS;
}

CUresult create_unexportable(CUmemGenericAllocationHandle* handle, std::size_t size,
                             const CUmemAllocationProp* properties, unsigned long long flags) {
  if (properties->requestedHandleTypes != CU_MEM_HANDLE_TYPE_NONE) return CUDA_ERROR_NOT_SUPPORTED;
  return simulated().cuMemCreate(handle, size, properties, flags);
}

CUresult create_without_rdma(CUmemGenericAllocationHandle* handle, std::size_t size,
                             const CUmemAllocationProp* properties, unsigned long long flags) {
  if (properties->allocFlags.gpuDirectRDMACapable != 0) return CUDA_ERROR_INVALID_VALUE;
  return simulated().cuMemCreate(handle, size, properties, flags);
}

CUresult create_small_handles(CUmemGenericAllocationHandle* handle, std::size_t size,
                              const CUmemAllocationProp* properties, unsigned long long flags) {
  if (size > (std::size_t{16} << 20)) return CUDA_ERROR_OUT_OF_MEMORY;
  return simulated().cuMemCreate(handle, size, properties, flags);
}

CUresult fill_nothing(CUdeviceptr, unsigned char, std::size_t, CUstream) { return CUDA_SUCCESS; }

CUresult map_nothing(CUdeviceptr, std::size_t, std::size_t, CUmemGenericAllocationHandle, unsigned long long) {
  return CUDA_ERROR_NOT_SUPPORTED;
}

/// A driver that keeps pages when they are released: for good, or until their address is given up.
std::vector<CUmemGenericAllocationHandle> kept;
CUresult release_nothing(CUmemGenericAllocationHandle handle) {
  kept.push_back(handle);
  return CUDA_SUCCESS;
}
void release_kept() {
  for (const auto handle : kept) CHECK(simulated().cuMemRelease(handle) == CUDA_SUCCESS);
  kept.clear();
}
CUresult free_address_with_pages(CUdeviceptr address, std::size_t size) {
  release_kept();
  return simulated().cuMemAddressFree(address, size);
}

/// A driver whose memory is sound until it is mapped a second time.
std::map<CUdeviceptr, int> mapped;
CUresult count_maps(CUdeviceptr address, std::size_t size, std::size_t offset, CUmemGenericAllocationHandle handle,
                    unsigned long long flags) {
  ++mapped[address];
  return simulated().cuMemMap(address, size, offset, handle, flags);
}
CUresult fill_first_mapping(CUdeviceptr address, unsigned char value, std::size_t size, CUstream stream) {
  const auto next = mapped.upper_bound(address);
  if (next != mapped.begin() && std::prev(next)->second > 1) return CUDA_SUCCESS;
  return simulated().cuMemsetD8Async(address, value, size, stream);
}

/// A driver whose handles are files.
std::map<CUmemGenericAllocationHandle, int> files;
CUresult create_with_file(CUmemGenericAllocationHandle* handle, std::size_t size, const CUmemAllocationProp* properties,
                          unsigned long long flags) {
  const auto result = simulated().cuMemCreate(handle, size, properties, flags);
  if (result == CUDA_SUCCESS) files[*handle] = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  return result;
}
CUresult release_with_file(CUmemGenericAllocationHandle handle) {
  ::close(files.at(handle));
  files.erase(handle);
  return simulated().cuMemRelease(handle);
}

/// Neighbours that allocate and free: at each look `restless` of 8 times, by a size that no trial has.
int looks = 0;
int restless = 0;
CUresult info_with_neighbours(std::size_t* free, std::size_t* total) {
  const auto result = simulated().cuMemGetInfo_v2(free, total);
  ++looks;
  if (looks % 8 < restless) *free -= static_cast<std::size_t>(looks % 3 + 1) * (std::size_t{11} << 20);
  return result;
}
/// A driver that shows what came free a look later; a neighbour that takes it and gives it back looks the same.
std::size_t shown_before = 0;
CUresult info_a_look_later(std::size_t* free, std::size_t* total) {
  const auto result = simulated().cuMemGetInfo_v2(free, total);
  const auto now = std::exchange(shown_before, *free);
  *free = std::min(*free, now);
  return result;
}

cuda::Driver with_neighbours(int how_often) {
  cuda::Driver driver = simulated();
  driver.cuMemGetInfo_v2 = info_with_neighbours;
  restless = how_often;
  looks = 0;
  return driver;
}

}  // namespace

TEST_CASE("a device that pauses is tried without a trace") {
  Primary primary;
  const Held before = held_now();
  {
    const auto backend = primary.choose(simulated());
    REQUIRE(backend);
    CHECK((*backend)->name() == std::string("vmm"));
    const auto& can = (*backend)->capabilities();
    CHECK((can.stable_address && can.gives_back && can.export_fd && can.rdma));
    CHECK(can.granularity == 2_MiB);
    CHECK((*backend)->device_name() == "simulated H200");
    CHECK_THAT((*backend)->reason(), !Contains("no vmm"));
    Held held = held_now();
    // What a pause on a full device needs.
    CHECK(held.streams > before.streams);
    CHECK(held.modules > before.modules);
    CHECK(held.host_allocations > before.host_allocations);
    held.streams = before.streams;
    held.modules = before.modules;
    held.host_allocations = before.host_allocations;
    CHECK(held == before);
  }
  CHECK(held_now() == before);
}

TEST_CASE("what a trial saw is told with numbers") {
  Primary primary;
  cuda::Driver driver = simulated();
  driver.cuMemCreate = create_with_file;
  driver.cuMemRelease = release_with_file;
  const auto report = tried(primary, driver, "vmm");
  CHECK(report.verdict == Verdict::works);
  CHECK(report.address_came_back == true);
  CHECK(report.descriptors_per_handle == 1);
  CHECK(report.descriptors_left == 0);
  CHECK(report.size >= portable::usual_trial);
  CHECK(tried(primary, simulated(), "recreate").address_came_back == true);
}

TEST_CASE("a driver whose free memory never rises is not taken for one that pauses") {
  Primary primary;
  cuda::Driver driver = simulated();
  driver.cuMemGetInfo_v2 = always_as_free;
  const auto backend = primary.choose(driver);
  REQUIRE(backend);
  CHECK((*backend)->name() == std::string("off"));
  CHECK_THAT((*backend)->reason(),
             Contains("no vmm: free memory does not rise") && Contains("no recreate: free memory does not rise"));
}

TEST_CASE("virtual memory management that frees nothing gives way to free and allocate") {
  Primary primary;
  cuda::Driver driver = simulated();
  driver.cuMemRelease = release_nothing;
  SECTION("ever") {
    const auto backend = primary.choose(driver);
    REQUIRE(backend);
    CHECK((*backend)->name() == std::string("recreate"));
    CHECK_THAT((*backend)->reason(), Contains("no vmm: free memory does not rise"));
  }
  SECTION("before the address goes") {
    driver.cuMemAddressFree = free_address_with_pages;
    CHECK(tried(primary, driver, "vmm").verdict == Verdict::frees_with_address);
    const auto backend = primary.choose(driver);
    REQUIRE(backend);
    CHECK((*backend)->name() == std::string("recreate"));
    CHECK_THAT((*backend)->reason(), Contains("no vmm: memory comes free only when its address goes too"));
  }
  SECTION("but is taken, with the complaint, by who asks for it") {
    const auto backend = primary.choose(driver, "vmm");
    REQUIRE(backend);
    CHECK((*backend)->name() == std::string("vmm"));
    CHECK_THAT((*backend)->reason(), Contains("LOWTIDE_BACKEND") && Contains("free memory does not rise"));
  }
  release_kept();
}

TEST_CASE("memory that does not hold what is written is found out") {
  Primary primary;
  cuda::Driver driver = simulated();
  SECTION("at once: no backend can use it, and nothing is paused") {
    driver.cuMemsetD8Async = fill_nothing;
    const auto backend = primary.choose(driver);
    REQUIRE(backend);
    CHECK((*backend)->name() == std::string("off"));
    CHECK_THAT((*backend)->reason(), Contains("does not hold what is written"));
  }
  SECTION("when it is mapped again") {
    driver.cuMemMap = count_maps;
    driver.cuMemsetD8Async = fill_first_mapping;
    const auto report = tried(primary, driver, "vmm");
    CHECK(report.verdict == Verdict::fails);
    REQUIRE(report.why);
    CHECK_THAT(report.why->message(), Contains("does not hold what is written"));
    mapped.clear();
  }
}

TEST_CASE("a driver that cannot map is named with its call") {
  Primary primary;
  cuda::Driver driver = simulated();
  driver.cuMemMap = map_nothing;
  const auto backend = primary.choose(driver);
  REQUIRE(backend);
  CHECK((*backend)->name() == std::string("recreate"));
  CHECK_FALSE((*backend)->capabilities().stable_address);
  CHECK_THAT((*backend)->reason(), Contains("no vmm: cuMemMap"));
  const auto forced = primary.choose(driver, "vmm");
  REQUIRE_FALSE(forced);
  CHECK(forced.error().code() == Code::config);
  CHECK_THAT(forced.error().message(), Contains("vmm cannot be had") && Contains("cuMemMap"));
}

TEST_CASE("a wish that the driver refuses is dropped, the others stay") {
  Primary primary;
  cuda::Driver driver = simulated();
  SECTION("export") {
    driver.cuMemCreate = create_unexportable;
    const auto backend = primary.choose(driver);
    REQUIRE(backend);
    CHECK((*backend)->name() == std::string("vmm"));
    CHECK_FALSE((*backend)->capabilities().export_fd);
  }
  SECTION("RDMA") {
    driver.cuMemCreate = create_without_rdma;
    const auto backend = primary.choose(driver);
    REQUIRE(backend);
    CHECK((*backend)->capabilities().export_fd);
    CHECK_FALSE((*backend)->capabilities().rdma);
  }
}

TEST_CASE("a driver that refuses large handles while memory is free is not taken for a full device") {
  Primary primary;
  cuda::Driver driver = simulated();
  driver.cuMemCreate = create_small_handles;
  CHECK(tried(primary, driver, "vmm").verdict == Verdict::fails);
  const auto backend = primary.choose(driver);
  REQUIRE(backend);
  CHECK((*backend)->name() == std::string("recreate"));
}

TEST_CASE("each backend can be asked for, and one that the device has not is refused") {
  Primary primary;
  for (const std::string name : {"vmm", "recreate", "off"}) {
    const auto backend = primary.choose(simulated(), name.c_str());
    REQUIRE(backend);
    CHECK((*backend)->name() == name);
    CHECK_THAT((*backend)->reason(), Contains("LOWTIDE_BACKEND"));
    CHECK((*backend)->capabilities().gives_back == (name != "off"));
  }
  const auto none = primary.choose(simulated(), "vmm+cycle");
  REQUIRE_FALSE(none);
  CHECK(none.error().code() == Code::config);
  CHECK_THAT(none.error().message(), Contains("LOWTIDE_BACKEND=vmm+cycle") && Contains("vmm, recreate, off"));
}

TEST_CASE("one granule is enough to try, and no granule decides nothing") {
  Primary primary;
  {
    const Filled filled(primary.id(), 2_MiB);
    const auto report = tried(primary, simulated(), "vmm");
    CHECK(report.verdict == Verdict::works);
    CHECK(report.size == 2_MiB);
    CHECK((*primary.choose(simulated()))->name() == std::string("vmm"));
  }
  const Filled filled(primary.id(), {});
  for (const char* forced : {"", "vmm", "recreate"}) {
    const auto backend = primary.choose(simulated(), forced);
    REQUIRE_FALSE(backend);
    CHECK(backend.error().code() == Code::device_memory);
  }
  CHECK(primary.choose(simulated(), "off"));
}

TEST_CASE("neighbours that come and go do not hide what a device can do") {
  Primary primary;
  const auto driver = with_neighbours(5);
  const auto report = tried(primary, driver, "vmm");
  CHECK(report.verdict == Verdict::works);
  CHECK(report.attempts > 2);
}

TEST_CASE("memory that comes free a moment later comes free") {
  Primary primary;
  cuda::Driver driver = simulated();
  driver.cuMemGetInfo_v2 = info_a_look_later;
  CHECK(tried(primary, driver, "vmm").verdict == Verdict::works);
}

TEST_CASE("what neighbours hide all the while is said, and costs no rung") {
  Primary primary;
  const auto driver = with_neighbours(8);
  CHECK(tried(primary, driver, "vmm").verdict == Verdict::undecided);
  const auto backend = primary.choose(driver);
  REQUIRE(backend);
  CHECK((*backend)->name() == std::string("vmm"));
  CHECK_THAT((*backend)->reason(), Contains("could not be seen: others changed"));
}

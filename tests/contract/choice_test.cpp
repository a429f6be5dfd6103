// SPDX-License-Identifier: Apache-2.0
// The probe believes what it tried: drivers that have every call and cannot pause are told apart from those that can.
#include "backends/cuda/probe.hpp"

#include "tests/catch.hpp"
#include "tests/contract/fault_plans.hpp"
#include "tests/contract/world.hpp"

using namespace lowtide;
using namespace lowtide::test;
using Catch::Matchers::Contains;

namespace {

const cuda::Driver& simulated() { return SimulatedDriver::instance().driver(); }

/// The primary context of device 0, for as long as a test needs it.
class Primary {
 public:
  Primary() { REQUIRE(simulated().cuDevicePrimaryCtxRetain(&context_, 0) == CUDA_SUCCESS); }
  Primary(const Primary&) = delete;
  Primary& operator=(const Primary&) = delete;
  ~Primary() { (void)simulated().cuDevicePrimaryCtxRelease_v2(0); }
  ContextId id() const { return {reinterpret_cast<std::uintptr_t>(context_)}; }

 private:
  CUcontext context_ = nullptr;
};

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

CUresult fill_nothing(CUdeviceptr, unsigned char, std::size_t, CUstream) { return CUDA_SUCCESS; }

CUresult map_nothing(CUdeviceptr, std::size_t, std::size_t, CUmemGenericAllocationHandle, unsigned long long) {
  return CUDA_ERROR_NOT_SUPPORTED;
}

}  // namespace

TEST_CASE("a device that pauses is probed without a trace") {
  const Primary primary;
  const Held before = held_now();
  {
    const auto backend = cuda::probe(simulated(), DeviceId{0}, primary.id());
    REQUIRE(backend);
    const auto& can = (*backend)->capabilities();
    CHECK((can.stable_address && can.export_fd && can.rdma));
    CHECK(can.granularity == 2_MiB);
    CHECK((*backend)->device_name() == "simulated H200");
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

TEST_CASE("a driver whose free memory does not rise is not taken for one that pauses") {
  const Primary primary;
  cuda::Driver driver = simulated();
  driver.cuMemGetInfo_v2 = always_as_free;
  const auto backend = cuda::probe(driver, DeviceId{0}, primary.id());
  REQUIRE_FALSE(backend);
  CHECK(backend.error().code() == Code::unsupported);
  CHECK_THAT(backend.error().message(), Contains("free memory does not rise"));
}

TEST_CASE("memory that does not hold what is written is found out") {
  const Primary primary;
  cuda::Driver driver = simulated();
  driver.cuMemsetD8Async = fill_nothing;
  const auto backend = cuda::probe(driver, DeviceId{0}, primary.id());
  REQUIRE_FALSE(backend);
  CHECK(backend.error().code() == Code::unsupported);
}

TEST_CASE("a driver that cannot map is named with its call") {
  const Primary primary;
  cuda::Driver driver = simulated();
  driver.cuMemMap = map_nothing;
  const auto backend = cuda::probe(driver, DeviceId{0}, primary.id());
  REQUIRE_FALSE(backend);
  CHECK(backend.error().code() == Code::unsupported);
  CHECK_THAT(backend.error().message(), Contains("cuMemMap"));
}

TEST_CASE("a wish that the driver refuses is dropped, the others stay") {
  const Primary primary;
  cuda::Driver driver = simulated();
  SECTION("export") {
    driver.cuMemCreate = create_unexportable;
    const auto backend = cuda::probe(driver, DeviceId{0}, primary.id());
    REQUIRE(backend);
    CHECK_FALSE((*backend)->capabilities().export_fd);
  }
  SECTION("RDMA") {
    driver.cuMemCreate = create_without_rdma;
    const auto backend = cuda::probe(driver, DeviceId{0}, primary.id());
    REQUIRE(backend);
    CHECK((*backend)->capabilities().export_fd);
    CHECK_FALSE((*backend)->capabilities().rdma);
  }
}

TEST_CASE("a full device is told apart from one that cannot pause") {
  const Primary primary;
  const cuda::ContextGuard guard(simulated(), reinterpret_cast<CUcontext>(primary.id().value));
  std::size_t free = 0;
  std::size_t total = 0;
  REQUIRE(simulated().cuMemGetInfo_v2(&free, &total) == CUDA_SUCCESS);
  CUdeviceptr block = 0;
  REQUIRE(simulated().cuMemAlloc_v2(&block, free) == CUDA_SUCCESS);
  const auto backend = cuda::probe(simulated(), DeviceId{0}, primary.id());
  REQUIRE(simulated().cuMemFree_v2(block) == CUDA_SUCCESS);
  REQUIRE_FALSE(backend);
  CHECK(backend.error().code() == Code::device_memory);
}

TEST_CASE("a probe whose driver calls fail once leaves nothing behind") {
  const Primary primary;
  FaultyDriver driver(simulated());
  driver.start({});
  REQUIRE(cuda::probe(driver.table(), DeviceId{0}, primary.id()));
  const auto usual = driver.stop().size();
  for (std::size_t k = 0; k < usual; ++k) {
    const Held before = held_now();
    driver.start(once(k));
    (void)cuda::probe(driver.table(), DeviceId{0}, primary.id());
    const auto calls = driver.stop();
    if (k >= calls.size()) break;  // a neighbour on the device makes a probe look once more, or no more
    INFO("failing: call " << k << ", " << calls[k].name);
    Held after = held_now();
    // No device memory: what the driver would not take back goes with its context, and addresses are plenty. So does
    // what work may still touch.
    const std::string_view failed = calls[k].name;
    const bool all = failed == "cuCtxPushCurrent_v2" || failed == "cuStreamSynchronize";
    if (failed == "cuStreamDestroy_v2" || all) after.streams = before.streams;
    if (failed == "cuModuleUnload" || all) after.modules = before.modules;
    if (failed == "cuMemFreeHost" || all) after.host_allocations = before.host_allocations;
    if (failed == "cuMemAddressFree") after.reservations = before.reservations;
    REQUIRE(after == before);
    REQUIRE(cuda::probe(simulated(), DeviceId{0}, primary.id()));  // the context is sound
  }
}

// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>

#include <string>

#include "tests/unit/simulated_gpu.hpp"

namespace {

/// Leaves no plan to the next test.
struct Plan {
  explicit Plan(const char* text) { REQUIRE(lowtide_sim_fail(text) == 0); }
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;
  ~Plan() { lowtide_sim_fail(nullptr); }
};

void* resolve(const char* name, int version, cuuint64_t flags = CU_GET_PROC_ADDRESS_DEFAULT) {
  void* address = nullptr;
  CUdriverProcAddressQueryResult status{};
  REQUIRE(cuGetProcAddress(name, &address, version, flags, &status) == CUDA_SUCCESS);
  CHECK((status == CU_GET_PROC_ADDRESS_SUCCESS) == (address != nullptr));
  return address;
}

void* exported(const char* name) { return ::dlsym(RTLD_DEFAULT, name); }

}  // namespace

TEST_CASE("a planned call fails once, before it has any effect") {
  const TestContext context;
  const Plan plan("cuMemCreate:2");
  const auto properties = device_memory();
  const auto before = live();
  CUmemGenericAllocationHandle handles[3] = {};
  REQUIRE(cuMemCreate(&handles[0], 2 * MiB, &properties, 0) == CUDA_SUCCESS);
  CHECK(cuMemCreate(&handles[1], 2 * MiB, &properties, 0) == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(live().physical_handles == before.physical_handles + 1);
  CHECK(live().used_bytes[0] == before.used_bytes[0] + 2 * MiB);
  REQUIRE(cuMemCreate(&handles[2], 2 * MiB, &properties, 0) == CUDA_SUCCESS);
  CHECK(lowtide_sim_calls("cuMemCreate") == 3);
  REQUIRE(cuMemRelease(handles[0]) == CUDA_SUCCESS);
  REQUIRE(cuMemRelease(handles[2]) == CUDA_SUCCESS);
}

TEST_CASE("a plan with a plus fails for good, and several rules hold together") {
  const TestContext context;
  Virtual memory(2 * MiB);
  const Plan plan("cuMemMap:1,cuMemMap:3+,cuMemUnmap:1");
  CHECK(cuMemMap(memory.address, memory.size, 0, memory.handle, 0) == CUDA_ERROR_UNKNOWN);
  REQUIRE(cuMemMap(memory.address, memory.size, 0, memory.handle, 0) == CUDA_SUCCESS);
  CHECK(cuMemUnmap(memory.address, memory.size) == CUDA_ERROR_UNKNOWN);
  REQUIRE(cuMemUnmap(memory.address, memory.size) == CUDA_SUCCESS);
  CHECK(cuMemMap(memory.address, memory.size, 0, memory.handle, 0) == CUDA_ERROR_UNKNOWN);
  CHECK(cuMemMap(memory.address, memory.size, 0, memory.handle, 0) == CUDA_ERROR_UNKNOWN);
  CHECK(live().mappings == 0);
}

TEST_CASE("a base name stands for all variants, in plans and in counts") {
  const TestContext context;
  const Plan plan("cuMemAlloc:1");
  CUdeviceptr block = 0;
  CHECK(cuMemAlloc(&block, MiB) == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(cuMemAlloc(&block, MiB) == CUDA_SUCCESS);
  CHECK(lowtide_sim_calls("cuMemAlloc") == 2);
  CHECK(lowtide_sim_calls("cuMemAlloc_v2") == 2);
}

TEST_CASE("what is not a plan is refused and changes nothing") {
  const TestContext context;
  const Plan plan("cuMemAlloc:1");
  for (const char* text : {"cuMemAlloc", "cuMemAlloc:0", "cuMemAlloc:x", "cuNoSuchThing:1", ":1", "cuMemMap:1,,"}) {
    CHECK(lowtide_sim_fail(text) == -1);
  }
  CUdeviceptr block = 0;
  CHECK(cuMemAlloc(&block, MiB) == CUDA_ERROR_OUT_OF_MEMORY);
}

TEST_CASE("every counted function is exported, and cuGetProcAddress gives the address that dlsym gives") {
  REQUIRE(lowtide_sim_is_simulated() == 1);
  std::size_t count = 0;
  for (; const char* name = lowtide_sim_function_name(count); ++count) {
    INFO(name);
    CHECK(exported(name) != nullptr);
  }
  CHECK(count > 100);
  CHECK(resolve("cuMemAlloc", 13000) == exported("cuMemAlloc_v2"));
  CHECK(resolve("cuMemcpyHtoD", 13000) == exported("cuMemcpyHtoD_v2"));
  CHECK(resolve("cuCtxCreate", 13000) == exported("cuCtxCreate_v4"));
  CHECK(resolve("cuCtxCreate", 11040) == exported("cuCtxCreate_v3"));
  CHECK(resolve("cuGetProcAddress", 11030) == exported("cuGetProcAddress"));
  CHECK(resolve("cuGetProcAddress", 12000) == exported("cuGetProcAddress_v2"));
  const auto per_thread = CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
  CHECK(resolve("cuMemcpyHtoD", 13000, per_thread) == exported("cuMemcpyHtoD_v2_ptds"));
  CHECK(resolve("cuLaunchKernel", 13000, per_thread) == exported("cuLaunchKernel_ptsz"));
  CHECK(resolve("cuMemAlloc", 13000, per_thread) == exported("cuMemAlloc_v2"));
  CHECK(resolve("cuMemCreate", 10010) == nullptr);
  CHECK(resolve("cuNoSuchThing", 13000) == nullptr);
  CHECK(resolve("", 0) == nullptr);
}

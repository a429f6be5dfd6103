// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include "backends/simulated/sim_control.h"
#include "tests/catch.hpp"

// Built twice: linked with the shared runtime and with the static one.

namespace {

std::uint64_t calls(const char* function) {
  static void* const driver = ::dlopen("libcuda.so.1", RTLD_NOW);
  REQUIRE(driver != nullptr);
  return reinterpret_cast<decltype(&lowtide_sim_calls)>(::dlsym(driver, "lowtide_sim_calls"))(function);
}

}  // namespace

TEST_CASE("the runtime boots through one lookup function and then allocates through the driver") {
  void* memory = nullptr;
  REQUIRE(cudaMalloc(&memory, 1 << 20) == cudaSuccess);
  CHECK(calls("cuGetProcAddress_v2") > 150);
  CHECK(calls("cuInit") == 1);
  CHECK(calls("cuDevicePrimaryCtxRetain") == 1);
  CHECK(calls("cuMemAlloc_v2") == 1);
  REQUIRE(cudaFree(memory) == cudaSuccess);
  CHECK(calls("cuMemFree_v2") == 1);
  CHECK(cudaFree(memory) == cudaErrorInvalidValue);
  CHECK(cudaGetLastError() == cudaErrorInvalidValue);
  CHECK(cudaGetLastError() == cudaSuccess);
  CHECK(std::string(cudaGetErrorString(cudaErrorMemoryAllocation)) == "out of memory");
}

TEST_CASE("bytes make the round trip, in a stream and as a graph") {
  constexpr std::size_t size = 1 << 20;
  std::vector<unsigned char> host(size, 3);
  void* memory = nullptr;
  cudaStream_t stream = nullptr;
  REQUIRE(cudaMalloc(&memory, size) == cudaSuccess);
  REQUIRE(cudaStreamCreate(&stream) == cudaSuccess);
  REQUIRE(cudaMemcpyAsync(memory, host.data(), size, cudaMemcpyHostToDevice, stream) == cudaSuccess);
  REQUIRE(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal) == cudaSuccess);
  REQUIRE(cudaMemsetAsync(memory, 8, size / 2, stream) == cudaSuccess);
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  REQUIRE(cudaStreamEndCapture(stream, &graph) == cudaSuccess);
  REQUIRE(cudaGraphInstantiate(&executable, graph, 0) == cudaSuccess);
  REQUIRE(cudaGraphLaunch(executable, stream) == cudaSuccess);
  REQUIRE(cudaMemcpy(host.data(), memory, size, cudaMemcpyDeviceToHost) == cudaSuccess);
  CHECK(host[0] == 8);
  CHECK(host[size - 1] == 3);
  REQUIRE(cudaGraphExecDestroy(executable) == cudaSuccess);
  REQUIRE(cudaGraphDestroy(graph) == cudaSuccess);
  REQUIRE(cudaStreamDestroy(stream) == cudaSuccess);
  REQUIRE(cudaFree(memory) == cudaSuccess);
}

TEST_CASE("after a device reset the runtime starts over") {
  void* memory = nullptr;
  REQUIRE(cudaMalloc(&memory, 1 << 20) == cudaSuccess);
  REQUIRE(cudaDeviceReset() == cudaSuccess);
  REQUIRE(cudaMalloc(&memory, 1 << 20) == cudaSuccess);
  REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
  REQUIRE(cudaFree(memory) == cudaSuccess);
}

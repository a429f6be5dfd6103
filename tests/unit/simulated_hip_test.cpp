// SPDX-License-Identifier: Apache-2.0
// A healthy device behind HIP's ABI.
#include <dlfcn.h>

#include <cstring>
#include <thread>
#include <vector>

#include "backends/hip/hip_declarations.h"
#include "backends/simulated/sim_control.h"
#include "tests/catch.hpp"

namespace {

constexpr std::size_t MiB = std::size_t{1} << 20;

void* driver_symbol(const char* name) {
  static void* const driver = ::dlopen("libcuda.so.1", RTLD_NOW);
  REQUIRE(driver != nullptr);
  return ::dlsym(driver, name);
}

lowtide_sim_live live() {
  lowtide_sim_live now{};
  now.struct_size = sizeof now;
  reinterpret_cast<decltype(&lowtide_sim_counts)>(driver_symbol("lowtide_sim_counts"))(&now);
  return now;
}

std::vector<unsigned char> bytes_at(const void* memory, std::size_t size) {
  std::vector<unsigned char> bytes(size);
  REQUIRE(hipMemcpy(bytes.data(), memory, size, hipMemcpyDeviceToHost) == hipSuccess);
  return bytes;
}

}  // namespace

TEST_CASE("a HIP program allocates from the driver, and errors have HIP's names") {
  REQUIRE(hipInit(0) == hipSuccess);
  char name[64] = {};
  REQUIRE(hipDeviceGetName(name, sizeof name, 0) == hipSuccess);
  CHECK(std::strstr(name, "simulated") != nullptr);
  void* memory = nullptr;
  REQUIRE(hipMalloc(&memory, MiB) == hipSuccess);
  CHECK(live().blocks == 1);
  std::size_t size = 0;
  CHECK(hipMemPtrGetInfo(memory, &size) == hipSuccess);
  CHECK(size == MiB);
  REQUIRE(hipFree(memory) == hipSuccess);
  CHECK(live().blocks == 0);
  CHECK(hipFree(memory) == hipErrorInvalidValue);
  CHECK(hipGetLastError() == hipErrorInvalidValue);
  CHECK(hipGetLastError() == hipSuccess);
  CHECK(std::string(hipGetErrorName(hipErrorOutOfMemory)) == "hipErrorOutOfMemory");
  CHECK(hipFree(nullptr) == hipSuccess);
  CHECK(hipMalloc(&memory, 0) == hipSuccess);
  CHECK(memory == nullptr);
}

TEST_CASE("bytes make the round trip, in a stream and as a graph") {
  std::vector<unsigned char> host(MiB, 3);
  void* memory = nullptr;
  hipStream_t stream = nullptr;
  REQUIRE(hipMalloc(&memory, MiB) == hipSuccess);
  REQUIRE(hipStreamCreateWithFlags(&stream, hipStreamNonBlocking) == hipSuccess);
  REQUIRE(hipMemcpyAsync(memory, host.data(), MiB, hipMemcpyHostToDevice, stream) == hipSuccess);
  REQUIRE(hipStreamBeginCapture(stream, hipStreamCaptureModeGlobal) == hipSuccess);
  hipStreamCaptureStatus status = hipStreamCaptureStatusNone;
  REQUIRE(hipStreamIsCapturing(stream, &status) == hipSuccess);
  CHECK(status == hipStreamCaptureStatusActive);
  REQUIRE(hipMemsetAsync(memory, 8, MiB / 2, stream) == hipSuccess);
  hipGraph_t graph = nullptr;
  hipGraphExec_t executable = nullptr;
  REQUIRE(hipStreamEndCapture(stream, &graph) == hipSuccess);
  REQUIRE(hipGraphInstantiate(&executable, graph, nullptr, nullptr, 0) == hipSuccess);
  REQUIRE(hipGraphLaunch(executable, stream) == hipSuccess);
  REQUIRE(hipStreamSynchronize(stream) == hipSuccess);
  const auto bytes = bytes_at(memory, MiB);
  CHECK(bytes.front() == 8);
  CHECK(bytes.back() == 3);
  REQUIRE(hipGraphExecDestroy(executable) == hipSuccess);
  REQUIRE(hipGraphDestroy(graph) == hipSuccess);
  REQUIRE(hipStreamDestroy(stream) == hipSuccess);
  REQUIRE(hipFree(memory) == hipSuccess);
}

TEST_CASE("a kernel runs, and what it wrote is seen behind its event") {
  hipModule_t module = nullptr;
  hipFunction_t kernel = nullptr;
  hipEvent_t done = nullptr;
  void* memory = nullptr;
  REQUIRE(hipModuleLoadData(&module, LOWTIDE_SIM_IMAGE) == hipSuccess);
  REQUIRE(hipModuleGetFunction(&kernel, module, "sim_add_one") == hipSuccess);
  REQUIRE(hipEventCreateWithFlags(&done, hipEventDisableTiming) == hipSuccess);
  REQUIRE(hipMalloc(&memory, MiB) == hipSuccess);
  REQUIRE(hipMemset(memory, 4, MiB) == hipSuccess);
  std::uint64_t address = reinterpret_cast<std::uintptr_t>(memory);
  std::uint64_t size = MiB;
  void* parameters[] = {&address, &size};
  REQUIRE(hipModuleLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, nullptr, parameters, nullptr) == hipSuccess);
  REQUIRE(hipEventRecord(done, nullptr) == hipSuccess);
  REQUIRE(hipEventSynchronize(done) == hipSuccess);
  CHECK(bytes_at(memory, MiB) == std::vector<unsigned char>(MiB, 5));
  REQUIRE(hipEventDestroy(done) == hipSuccess);
  REQUIRE(hipModuleUnload(module) == hipSuccess);
  REQUIRE(hipFree(memory) == hipSuccess);
}

TEST_CASE("a thread has the device that it chose, and begins with the first") {
  int device = -1;
  REQUIRE(hipSetDevice(1) == hipSuccess);
  std::thread([&] { (void)hipGetDevice(&device); }).join();
  CHECK(device == 0);
  REQUIRE(hipGetDevice(&device) == hipSuccess);
  CHECK(device == 1);
  void* memory = nullptr;
  REQUIRE(hipMalloc(&memory, MiB) == hipSuccess);
  hipPointerAttribute_t about{};
  REQUIRE(hipPointerGetAttributes(&about, memory) == hipSuccess);
  CHECK(about.device == 1);
  CHECK(about.memoryType == 2);
  REQUIRE(hipPointerGetAttributes(&about, &about) == hipSuccess);
  CHECK(about.memoryType == 0);
  CHECK(hipSetDevice(2) == hipErrorInvalidDevice);
  REQUIRE(hipDeviceReset() == hipSuccess);
  CHECK(live().blocks == 0);
  REQUIRE(hipMalloc(&memory, MiB) == hipSuccess);
  REQUIRE(hipFree(memory) == hipSuccess);
  REQUIRE(hipSetDevice(0) == hipSuccess);
}

TEST_CASE("a device opens its memory to another, once") {
  CHECK(hipDeviceEnablePeerAccess(1, 0) == hipSuccess);
  CHECK(hipDeviceEnablePeerAccess(1, 0) == hipErrorPeerAccessAlreadyEnabled);
  CHECK(hipDeviceDisablePeerAccess(1) == hipSuccess);
  CHECK(hipDeviceDisablePeerAccess(1) == hipErrorPeerAccessNotEnabled);
}

TEST_CASE("every function is found by its name, and says so when there is none") {
  void* address = nullptr;
  int status = -1;
  REQUIRE(hipGetProcAddress("hipMalloc", &address, 60100000, 0, &status) == hipSuccess);
  CHECK(address == reinterpret_cast<void*>(&hipMalloc));
  CHECK(status == 0);
  CHECK(hipGetProcAddress("hipNothing", &address, 60100000, 0, &status) != hipSuccess);
  CHECK(address == nullptr);
  CHECK(status == 1);
}

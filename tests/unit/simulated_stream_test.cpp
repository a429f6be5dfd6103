// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <chrono>
#include <thread>

#include "tests/unit/simulated_gpu.hpp"

namespace {

CUstream make_stream(unsigned flags) {
  CUstream stream = nullptr;
  REQUIRE(cuStreamCreate(&stream, flags) == CUDA_SUCCESS);
  return stream;
}

}  // namespace

TEST_CASE("a non-blocking stream runs beside a default stream that is stuck") {
  const TestContext context;
  const auto stream = make_stream(CU_STREAM_NON_BLOCKING);
  CUdeviceptr block = 0;
  REQUIRE(cuMemAlloc(&block, MiB) == CUDA_SUCCESS);
  RunningKernel stuck(nullptr);
  REQUIRE(cuMemsetD8Async(block, 7, MiB, stream) == CUDA_SUCCESS);
  CHECK(cuStreamSynchronize(stream) == CUDA_SUCCESS);
  CHECK(cuStreamQuery(nullptr) == CUDA_ERROR_NOT_READY);
  stuck.let_go();
  CHECK(cuCtxSynchronize() == CUDA_SUCCESS);
  CHECK(all_equal(block, MiB, 7));
}

TEST_CASE("a blocking stream waits for the default stream, and the default stream for it") {
  const TestContext context;
  const auto stream = make_stream(CU_STREAM_DEFAULT);
  const bool default_first = GENERATE(true, false);
  const auto first = default_first ? nullptr : stream;
  const auto second = default_first ? stream : nullptr;
  RunningKernel running(first);
  std::atomic<bool> reached{false};
  const auto note = [](void* flag) { static_cast<std::atomic<bool>*>(flag)->store(true); };
  REQUIRE(cuLaunchHostFunc(second, note, &reached) == CUDA_SUCCESS);
  CHECK(cuStreamQuery(second) == CUDA_ERROR_NOT_READY);
  // A right order passes however long this is; a wrong one gets the time to show.
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  CHECK_FALSE(reached);
  running.let_go();
  CHECK(cuStreamSynchronize(second) == CUDA_SUCCESS);
  CHECK(reached);
}

TEST_CASE("an event orders two streams that are otherwise independent") {
  const TestContext context;
  const auto first = make_stream(CU_STREAM_NON_BLOCKING);
  const auto second = make_stream(CU_STREAM_NON_BLOCKING);
  CUevent event = nullptr;
  REQUIRE(cuEventCreate(&event, CU_EVENT_DEFAULT) == CUDA_SUCCESS);
  CHECK(cuEventQuery(event) == CUDA_SUCCESS);
  RunningKernel running(first);
  REQUIRE(cuEventRecord(event, first) == CUDA_SUCCESS);
  REQUIRE(cuStreamWaitEvent(second, event, 0) == CUDA_SUCCESS);
  CHECK(cuEventQuery(event) == CUDA_ERROR_NOT_READY);
  CHECK(cuStreamQuery(second) == CUDA_ERROR_NOT_READY);
  running.let_go();
  CHECK(cuStreamSynchronize(second) == CUDA_SUCCESS);
  CHECK(cuEventQuery(event) == CUDA_SUCCESS);
}

TEST_CASE("a kernel that meets unmapped memory fails its context instead of the process") {
  const TestContext outer;
  Virtual memory(64 * MiB);
  memory.map();
  const TestContext context;
  const auto stream = make_stream(CU_STREAM_NON_BLOCKING);
  TestKernel slow("sim_fill_slowly");
  std::atomic<bool> under_way{false};
  const auto note = [](void* flag) { static_cast<std::atomic<bool>*>(flag)->store(true); };
  REQUIRE(cuLaunchHostFunc(stream, note, &under_way) == CUDA_SUCCESS);
  REQUIRE(slow.launch(stream, memory.address, memory.size, 1, 20000) == CUDA_SUCCESS);
  while (!under_way) std::this_thread::yield();
  memory.unmap();
  CHECK(cuStreamSynchronize(stream) == CUDA_ERROR_ILLEGAL_ADDRESS);
  CHECK(cuCtxSynchronize() == CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST_CASE("the kernels do what they say") {
  const TestContext context;
  CUdeviceptr block = 0;
  REQUIRE(cuMemAlloc(&block, 3 * MiB + 5) == CUDA_SUCCESS);
  REQUIRE(TestKernel("sim_fill_random").launch(nullptr, block, 3 * MiB + 5, 42) == CUDA_SUCCESS);
  const auto random = bytes_at(block, 3 * MiB + 5);
  REQUIRE(TestKernel("sim_add_one").launch(nullptr, block, 3 * MiB + 5) == CUDA_SUCCESS);
  const auto more = bytes_at(block, 3 * MiB + 5);
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < random.size(); ++i) wrong += static_cast<unsigned char>(random[i] + 1) != more[i];
  CHECK(wrong == 0);
  CHECK(std::vector<unsigned char>(random.begin(), random.begin() + 1024) !=
        std::vector<unsigned char>(random.begin() + 1024, random.begin() + 2048));
  CUmodule module = nullptr;
  CHECK(cuModuleLoadData(&module, ".version 8.0 .target sm_90") == CUDA_ERROR_INVALID_IMAGE);
}

TEST_CASE("a destroyed context takes its plain memory, streams and running kernels along, not its VMM memory") {
  REQUIRE(cuInit(0) == CUDA_SUCCESS);
  const auto before = live();
  CUcontext context = nullptr;
  REQUIRE(cuCtxCreate(&context, nullptr, 0, 0) == CUDA_SUCCESS);
  CUdeviceptr block = 0;
  REQUIRE(cuMemAlloc(&block, MiB) == CUDA_SUCCESS);
  const auto stream = make_stream(CU_STREAM_NON_BLOCKING);
  Virtual memory(2 * MiB);
  memory.map();
  const RunningKernel running(stream);
  REQUIRE(cuCtxDestroy(context) == CUDA_SUCCESS);

  CHECK(cuCtxSynchronize() == CUDA_ERROR_INVALID_CONTEXT);
  CHECK_FALSE(readable(block));
  CHECK(readable(memory.address));
  const auto after = live();
  CHECK(after.blocks == before.blocks);
  CHECK(after.streams == before.streams);
  CHECK(after.contexts == before.contexts);
  const TestContext another;
  CHECK(cuStreamSynchronize(stream) == CUDA_ERROR_INVALID_HANDLE);
  CHECK(cuCtxSetCurrent(context) == CUDA_ERROR_INVALID_CONTEXT);
  CHECK(cuMemFree(block) == CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("a context destroyed by another thread is known to be gone where it is current") {
  REQUIRE(cuInit(0) == CUDA_SUCCESS);
  CUcontext context = nullptr;
  REQUIRE(cuCtxCreate(&context, nullptr, 0, 0) == CUDA_SUCCESS);
  std::thread([&] { REQUIRE(cuCtxDestroy(context) == CUDA_SUCCESS); }).join();
  CHECK(cuCtxSynchronize() == CUDA_ERROR_CONTEXT_IS_DESTROYED);
  REQUIRE(cuCtxPopCurrent(&context) == CUDA_SUCCESS);
  CHECK(cuCtxSynchronize() == CUDA_ERROR_INVALID_CONTEXT);
}

TEST_CASE("the primary context is counted, and comes back under its handle after a reset") {
  REQUIRE(cuInit(0) == CUDA_SUCCESS);
  CUcontext first = nullptr;
  CUcontext second = nullptr;
  REQUIRE(cuDevicePrimaryCtxRetain(&first, 0) == CUDA_SUCCESS);
  REQUIRE(cuDevicePrimaryCtxRetain(&second, 0) == CUDA_SUCCESS);
  CHECK(first == second);
  REQUIRE(cuDevicePrimaryCtxRelease(0) == CUDA_SUCCESS);
  unsigned flags = 0;
  int active = 0;
  REQUIRE(cuDevicePrimaryCtxGetState(0, &flags, &active) == CUDA_SUCCESS);
  CHECK(active == 1);
  REQUIRE(cuDevicePrimaryCtxReset(0) == CUDA_SUCCESS);
  REQUIRE(cuDevicePrimaryCtxGetState(0, &flags, &active) == CUDA_SUCCESS);
  CHECK(active == 0);
  CHECK(cuDevicePrimaryCtxRelease(0) == CUDA_ERROR_INVALID_CONTEXT);
  REQUIRE(cuDevicePrimaryCtxRetain(&second, 0) == CUDA_SUCCESS);
  CHECK(second == first);
  REQUIRE(cuDevicePrimaryCtxRelease(0) == CUDA_SUCCESS);
}

TEST_CASE("a free waits for the work that may use the memory") {
  const TestContext context;
  const auto stream = make_stream(CU_STREAM_NON_BLOCKING);
  CUdeviceptr block = 0;
  REQUIRE(cuMemAlloc(&block, 64 * MiB) == CUDA_SUCCESS);
  REQUIRE(TestKernel("sim_fill_slowly").launch(stream, block, 64 * MiB, 3, 50) == CUDA_SUCCESS);
  CHECK(cuMemFree(block) == CUDA_SUCCESS);
  CHECK(cuCtxSynchronize() == CUDA_SUCCESS);
}

TEST_CASE("a stream-ordered free happens behind the work before it") {
  const TestContext context;
  const auto stream = make_stream(CU_STREAM_NON_BLOCKING);
  const auto before = live().blocks;
  CUdeviceptr block = 0;
  REQUIRE(cuMemAllocAsync(&block, MiB, stream) == CUDA_SUCCESS);
  RunningKernel running(stream);
  REQUIRE(cuMemsetD8Async(block, 1, MiB, stream) == CUDA_SUCCESS);
  REQUIRE(cuMemFreeAsync(block, stream) == CUDA_SUCCESS);
  CHECK(live().blocks == before + 1);
  running.let_go();
  CHECK(cuStreamSynchronize(stream) == CUDA_SUCCESS);
  CHECK(live().blocks == before);
}

TEST_CASE("pageable host memory may be reused as soon as an asynchronous copy returns") {
  const TestContext context;
  const auto stream = make_stream(CU_STREAM_NON_BLOCKING);
  CUdeviceptr block = 0;
  REQUIRE(cuMemAlloc(&block, MiB) == CUDA_SUCCESS);
  std::vector<unsigned char> host(MiB, 1);
  REQUIRE(cuMemcpyHtoDAsync(block, host.data(), MiB, stream) == CUDA_SUCCESS);
  host.assign(MiB, 2);
  REQUIRE(cuStreamSynchronize(stream) == CUDA_SUCCESS);
  CHECK(all_equal(block, MiB, 1));
}

TEST_CASE("a kernel reaches another device's memory only after peer access was enabled") {
  REQUIRE(cuInit(0) == CUDA_SUCCESS);
  int devices = 0;
  REQUIRE(cuDeviceGetCount(&devices) == CUDA_SUCCESS);
  REQUIRE(devices == 2);
  const TestContext owner(1);
  CUdeviceptr block = 0;
  REQUIRE(cuMemAlloc(&block, MiB) == CUDA_SUCCESS);
  {
    const TestContext stranger(0);
    REQUIRE(TestKernel("sim_add_one").launch(nullptr, block, MiB) == CUDA_SUCCESS);
    CHECK(cuCtxSynchronize() == CUDA_ERROR_ILLEGAL_ADDRESS);
  }
  const TestContext peer(0);
  REQUIRE(cuCtxEnablePeerAccess(owner.get(), 0) == CUDA_SUCCESS);
  CHECK(cuCtxEnablePeerAccess(owner.get(), 0) == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
  REQUIRE(TestKernel("sim_add_one").launch(nullptr, block, MiB) == CUDA_SUCCESS);
  CHECK(cuCtxSynchronize() == CUDA_SUCCESS);
  CHECK(all_equal(block, MiB, 1));
  CHECK(cuCtxDisablePeerAccess(owner.get()) == CUDA_SUCCESS);
  CHECK(cuCtxDisablePeerAccess(owner.get()) == CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
}

TEST_CASE("virtual memory is reached by the devices it was opened to") {
  const TestContext context(0);
  Virtual memory(2 * MiB, 1);
  memory.map(1);
  {
    const TestContext stranger(0);
    REQUIRE(TestKernel("sim_add_one").launch(nullptr, memory.address, memory.size) == CUDA_SUCCESS);
    CHECK(cuCtxSynchronize() == CUDA_ERROR_ILLEGAL_ADDRESS);
  }
  REQUIRE(allow(memory.address, memory.size, 0) == CUDA_SUCCESS);
  REQUIRE(TestKernel("sim_add_one").launch(nullptr, memory.address, memory.size) == CUDA_SUCCESS);
  CHECK(cuCtxSynchronize() == CUDA_SUCCESS);
}

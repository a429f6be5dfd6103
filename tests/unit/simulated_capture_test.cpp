// SPDX-License-Identifier: Apache-2.0
#include <thread>

#include "tests/unit/simulated_gpu.hpp"

namespace {

/// A stream under capture, with a block to work on.
struct Capturing {
  explicit Capturing(CUstreamCaptureMode mode, unsigned flags = CU_STREAM_NON_BLOCKING) {
    REQUIRE(cuMemAlloc(&block, MiB) == CUDA_SUCCESS);
    REQUIRE(cuMemsetD8(block, 0, MiB) == CUDA_SUCCESS);
    REQUIRE(cuStreamCreate(&stream, flags) == CUDA_SUCCESS);
    REQUIRE(cuStreamBeginCapture(stream, mode) == CUDA_SUCCESS);
  }
  CUresult end() { return cuStreamEndCapture(stream, &graph); }
  CUstreamCaptureStatus status() const {
    CUstreamCaptureStatus now{};
    REQUIRE(cuStreamIsCapturing(stream, &now) == CUDA_SUCCESS);
    return now;
  }

  CUdeviceptr block = 0;
  CUstream stream = nullptr;
  CUgraph graph = nullptr;
};

void replay(CUgraph graph, CUstream stream) {
  CUgraphExec executable = nullptr;
  REQUIRE(cuGraphInstantiate(&executable, graph, 0) == CUDA_SUCCESS);
  REQUIRE(cuGraphLaunch(executable, stream) == CUDA_SUCCESS);
  REQUIRE(cuStreamSynchronize(stream) == CUDA_SUCCESS);
  REQUIRE(cuGraphExecDestroy(executable) == CUDA_SUCCESS);
  REQUIRE(cuGraphDestroy(graph) == CUDA_SUCCESS);
}

}  // namespace

TEST_CASE("captured work runs when the graph is launched, not before") {
  const TestContext context;
  TestKernel add("sim_add_one");
  Capturing capture(CU_STREAM_CAPTURE_MODE_GLOBAL);
  CHECK(capture.status() == CU_STREAM_CAPTURE_STATUS_ACTIVE);
  REQUIRE(cuMemsetD8Async(capture.block, 4, MiB, capture.stream) == CUDA_SUCCESS);
  REQUIRE(add.launch(capture.stream, capture.block, MiB) == CUDA_SUCCESS);
  REQUIRE(capture.end() == CUDA_SUCCESS);
  CHECK(capture.status() == CU_STREAM_CAPTURE_STATUS_NONE);
  CHECK(all_equal(capture.block, MiB, 0));
  std::size_t nodes = 0;
  REQUIRE(cuGraphGetNodes(capture.graph, nullptr, &nodes) == CUDA_SUCCESS);
  CHECK(nodes == 2);
  replay(capture.graph, capture.stream);
  CHECK(all_equal(capture.block, MiB, 5));
}

TEST_CASE("a graph that finds its memory parked fails its context") {
  const TestContext outer;
  Virtual memory(2 * MiB);
  memory.map();
  const TestContext context;
  Capturing capture(CU_STREAM_CAPTURE_MODE_GLOBAL);
  REQUIRE(cuMemsetD8Async(memory.address, 4, MiB, capture.stream) == CUDA_SUCCESS);
  REQUIRE(capture.end() == CUDA_SUCCESS);
  memory.unmap();
  CUgraphExec executable = nullptr;
  REQUIRE(cuGraphInstantiate(&executable, capture.graph, 0) == CUDA_SUCCESS);
  REQUIRE(cuGraphLaunch(executable, capture.stream) == CUDA_SUCCESS);
  CHECK(cuStreamSynchronize(capture.stream) == CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST_CASE("an unsafe call from any thread breaks a global capture, unless that thread is relaxed") {
  const TestContext context;
  Capturing capture(CU_STREAM_CAPTURE_MODE_GLOBAL);
  const bool relaxed = GENERATE(true, false);
  CUresult answered = CUDA_ERROR_UNKNOWN;
  std::thread([&] {
    auto mode = relaxed ? CU_STREAM_CAPTURE_MODE_RELAXED : CU_STREAM_CAPTURE_MODE_GLOBAL;
    cuThreadExchangeStreamCaptureMode(&mode);
    cuCtxSetCurrent(context.get());
    CUdeviceptr block = 0;
    answered = cuMemAlloc(&block, MiB);
  }).join();
  CHECK(answered == (relaxed ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED));
  CHECK(capture.status() == (relaxed ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_INVALIDATED));
  CHECK(capture.end() == (relaxed ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED));
}

TEST_CASE("a thread-local capture minds the unsafe calls of its own thread only") {
  const TestContext context;
  Capturing capture(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
  CUdeviceptr block = 0;
  CUresult answered = CUDA_ERROR_UNKNOWN;
  std::thread([&] {
    cuCtxSetCurrent(context.get());
    answered = cuMemAlloc(&block, MiB);
  }).join();
  CHECK(answered == CUDA_SUCCESS);
  CHECK(cuMemAlloc(&block, MiB) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  CHECK(capture.end() == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

TEST_CASE("synchronous calls are unsafe during a capture") {
  const TestContext context;
  Capturing capture(CU_STREAM_CAPTURE_MODE_GLOBAL);
  char byte = 0;
  SECTION("a copy") { CHECK(cuMemcpyHtoD(capture.block, &byte, 1) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED); }
  SECTION("a free") { CHECK(cuMemFree(capture.block) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED); }
  SECTION("its own stream") { CHECK(cuStreamSynchronize(capture.stream) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED); }
  CHECK(capture.end() == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  CHECK(cuCtxSynchronize() == CUDA_SUCCESS);
}

TEST_CASE("waiting for the whole context fails during any capture in it, in any mode") {
  const TestContext context;
  const auto capture_mode = GENERATE(CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_RELAXED);
  Capturing capture(capture_mode);
  CUresult answered = CUDA_SUCCESS;
  std::thread([&] {
    auto mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    cuThreadExchangeStreamCaptureMode(&mode);
    cuCtxSetCurrent(context.get());
    answered = cuCtxSynchronize();
  }).join();
  CHECK(answered == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  {
    const TestContext other;
    auto mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    cuThreadExchangeStreamCaptureMode(&mode);
    CHECK(cuCtxSynchronize() == CUDA_SUCCESS);
    cuThreadExchangeStreamCaptureMode(&mode);
  }
  CHECK(capture.end() == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

TEST_CASE("the default stream cannot be used beside a captured blocking stream") {
  const TestContext context;
  Capturing capture(CU_STREAM_CAPTURE_MODE_RELAXED, CU_STREAM_DEFAULT);
  CHECK(cuMemsetD8Async(capture.block, 1, 1, nullptr) == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  CHECK(capture.end() == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  CHECK(cuStreamBeginCapture(nullptr, CU_STREAM_CAPTURE_MODE_RELAXED) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
}

TEST_CASE("a second stream joins a capture by an event and has to be waited for") {
  const TestContext context;
  const bool joins = GENERATE(true, false);
  CUevent fork = nullptr;
  CUevent join = nullptr;
  REQUIRE(cuEventCreate(&fork, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS);
  REQUIRE(cuEventCreate(&join, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS);
  CUstream second = nullptr;
  REQUIRE(cuStreamCreate(&second, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
  Capturing capture(CU_STREAM_CAPTURE_MODE_RELAXED);
  REQUIRE(cuEventRecord(fork, capture.stream) == CUDA_SUCCESS);
  REQUIRE(cuStreamWaitEvent(second, fork, 0) == CUDA_SUCCESS);
  REQUIRE(cuMemsetD8Async(capture.block, 6, MiB, second) == CUDA_SUCCESS);
  REQUIRE(cuEventRecord(join, second) == CUDA_SUCCESS);
  if (joins) {
    REQUIRE(cuStreamWaitEvent(capture.stream, join, 0) == CUDA_SUCCESS);
    REQUIRE(capture.end() == CUDA_SUCCESS);
    replay(capture.graph, capture.stream);
    CHECK(all_equal(capture.block, MiB, 6));
  } else {
    CHECK(capture.end() == CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
  }
  CHECK(cuStreamQuery(second) == CUDA_SUCCESS);
}

TEST_CASE("a capture is ended where it began") {
  const TestContext context;
  Capturing capture(CU_STREAM_CAPTURE_MODE_GLOBAL);
  CUresult answered = CUDA_SUCCESS;
  std::thread([&] {
    cuCtxSetCurrent(context.get());
    CUgraph graph = nullptr;
    answered = cuStreamEndCapture(capture.stream, &graph);
  }).join();
  CHECK(answered == CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
  CHECK(cuStreamBeginCapture(capture.stream, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_ERROR_ILLEGAL_STATE);
  CHECK(capture.end() == CUDA_SUCCESS);
}

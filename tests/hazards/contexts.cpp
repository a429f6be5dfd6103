// SPDX-License-Identifier: Apache-2.0
// Threads without a context, devices with two, contexts that go away, and peers.
#include "tests/catch.hpp"
#include "tests/hazards/other_thread.hpp"
#include "tests/hazards/program.hpp"

// Every driver has it; cuda.h declares only the newest version.
extern "C" CUresult cuCtxCreate_v2(CUcontext*, unsigned, CUdevice);

using namespace hazards;

namespace {

/// A context besides the primary one, not current in any thread once it is made.
class Second {
 public:
  explicit Second(int device = 0) {
    must(cuCtxCreate_v2(&context_, 0, device));
    must(cuCtxPopCurrent(nullptr));
  }
  ~Second() { destroy(); }
  Second(const Second&) = delete;
  Second& operator=(const Second&) = delete;
  operator CUcontext() const { return context_; }
  void destroy() {
    if (context_ != nullptr) cuCtxDestroy(context_);
    context_ = nullptr;
  }

 private:
  CUcontext context_ = nullptr;
};

std::vector<Block> blocks_in(CUcontext context, const char* tag, std::size_t count, std::size_t size) {
  const Current current(context);
  return make_blocks(tag, count, size);
}

void forget(std::vector<Block>& blocks) {
  for (auto& block : blocks) block.forget();
}

}  // namespace

TEST_CASE("a thread without a context", "[contexts]") {
  use_device();
  auto blocks = make_blocks("weights", 2, 2 * mib);
  OtherThread thread([&] {
    CUdeviceptr address = 1;
    const auto expected = cuMemAlloc(&address, mib);
    must(expected != CUDA_SUCCESS, "the driver refuses a thread without a context");
    {
      const Scope scope("weights");
      must(cuMemAlloc(&address, mib) == expected, "a scope changes nothing about that");
    }
    must(address == 1, "nothing was allocated");
    must(pause("weights").blocks == 2, "pause");
    must(resume("weights").blocks == 2, "resume");
    CUcontext none = nullptr;
    must(cuCtxGetCurrent(&none));
    must(none == nullptr, "the thread still has no context");
  });
  thread.join();
  CHECK(intact(blocks));
}

TEST_CASE("another current device", "[contexts]") {
  use_device(0);
  auto on_0 = make_blocks("weights", 2, 2 * mib);
  use_device(1);
  auto on_1 = make_blocks("weights", 1, 4 * mib);
  CHECK(info("weights", 0).bytes_resident == 4 * mib + 1);
  CHECK(info("weights", 1).bytes_resident == 4 * mib);
  // The current device is 1; the tag lies on both.
  CHECK(pause("weights").blocks == 3);
  CUdevice current = -1;
  must(cuCtxGetDevice(&current));
  CHECK(current == 1);
  CHECK(on_0[1].free() == CUDA_SUCCESS);
  CHECK(resume("weights").blocks == 2);
  must(cuCtxGetDevice(&current));
  CHECK(current == 1);
  CHECK(on_0[0].free() == CUDA_SUCCESS);
  CHECK(intact(on_1));
  CHECK(blocks_of("weights") == 1);
}

TEST_CASE("two contexts on a device", "[contexts]") {
  const auto primary = use_device();
  const Second second;
  const auto first_blocks = blocks_in(primary, "weights", 2, 2 * mib);
  auto second_blocks = blocks_in(second, "weights", 2, 2 * mib);
  {
    // Work in a context that is not current waits too.
    const Current current(second);
    const Kernels kernels;
    const Stream stream;
    kernels.fill_slowly(second_blocks[0].address(), second_blocks[0].size(), 0x77, 100, stream);
    second_blocks[0].expect(0x77);
    const Current other(primary);
    CHECK(pause("weights").blocks == 4);
    CHECK(resume("weights").blocks == 4);
  }
  CHECK(intact(first_blocks));
  const Current current(second);
  CHECK(intact(second_blocks));
}

TEST_CASE("a destroyed context", "[contexts]") {
  const auto primary = use_device();
  const auto before = used_bytes();
  const auto kept = blocks_in(primary, "weights", 2, 2 * mib);
  const auto kept_small = blocks_in(primary, "weights", 1, 3000);
  const auto with_kept = used_bytes();
  Second second;
  auto lost = blocks_in(second, "weights", 2, 3 * mib);
  auto lost_small = blocks_in(second, "weights", 1, 3000);
  const auto address = lost[0].address();

  SECTION("while its blocks are resident") {}
  SECTION("while its blocks are parked") { pause("weights"); }
  forget(lost);
  forget(lost_small);
  second.destroy();
  resume("weights");
  CHECK(used_bytes() == with_kept);
  CHECK(info("weights").bytes_resident == 4 * mib + 1 + 3000);
  CHECK(info("weights").bytes_backup == 0);
  CHECK(intact(kept));
  CHECK(intact(kept_small));
  (void)cuMemFree(address);  // whatever it answers, nobody else's memory goes
  CHECK(blocks_of("weights") == 3);
  CHECK(pause("weights").blocks == 3);
  resume("weights");
  CHECK(intact(kept));
  CHECK(before < with_kept);
}

TEST_CASE("a destroyed context, whose stream was being captured", "[contexts]") {
  use_device();
  const auto blocks = make_blocks("weights", 2, 2 * mib);
  Second second;
  {
    const Current current(second);
    CUstream stream = nullptr;
    must(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    must(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    CHECK(lowtide_pause("weights", nullptr) == LOWTIDE_ERROR_REFUSED);
  }
  second.destroy();
  CHECK(pause("weights").blocks == 2);
  resume("weights");
  CHECK(intact(blocks));
}

TEST_CASE("a context that the driver does not destroy", "[contexts]") {
  const auto primary = use_device();
  const auto blocks = make_blocks("weights", 2, 2 * mib);
  CHECK(cuCtxDestroy(primary) == CUDA_ERROR_INVALID_CONTEXT);
  CHECK(blocks_of("weights") == 2);
  CHECK(intact(blocks));
  CHECK(pause("weights").blocks == 2);
  resume("weights");
  CHECK(intact(blocks));
}

TEST_CASE("a reset primary context", "[contexts]") {
  use_device(0);
  const auto elsewhere = make_blocks("weights", 1, 2 * mib);
  CUcontext context = nullptr;
  must(cuDevicePrimaryCtxRetain(&context, 2));
  auto blocks = blocks_in(context, "weights", 2, 2 * mib);
  REQUIRE(used_bytes(2) == 6 * mib);
  SECTION("while its blocks are resident") {}
  SECTION("while its blocks are parked") { pause("weights"); }
  forget(blocks);
  must(cuDevicePrimaryCtxReset(2));
  resume("weights");
  CHECK(used_bytes(2) == 0);
  CHECK(info("weights").blocks == 1);
  CHECK(intact(elsewhere));
  // The device is used again.
  must(cuDevicePrimaryCtxRetain(&context, 2));
  {
    const auto again = blocks_in(context, "weights", 2, 2 * mib);
    CHECK(pause("weights").blocks == 3);
    CHECK(resume("weights").blocks == 3);
    const Current current(context);
    CHECK(intact(again));
  }
  must(cuDevicePrimaryCtxRelease(2));
}

TEST_CASE("the last release of a primary context", "[contexts]") {
  use_device(0);
  CUcontext context = nullptr;
  must(cuDevicePrimaryCtxRetain(&context, 2));
  must(cuDevicePrimaryCtxRetain(&context, 2));
  auto blocks = blocks_in(context, "weights", 2, 2 * mib);
  must(cuDevicePrimaryCtxRelease(2));
  CHECK(blocks_of("weights") == 2);
  {
    const Current current(context);
    CHECK(intact(blocks));
  }
  forget(blocks);
  must(cuDevicePrimaryCtxRelease(2));
  CHECK(blocks_of("weights") == 0);
  CHECK(used_bytes(2) == 0);
  CHECK(lowtide_pause(nullptr, nullptr) == LOWTIDE_OK);
}

TEST_CASE("a context that could not be watched at first", "[contexts]") {
  const auto primary = use_device();
  const auto first = make_blocks("weights", 1, 2 * mib);
  // The stream that Lowtide wants in the new context is refused.
  lowtide_sim_fail("cuStreamCreate:1");
  Second second;
  lowtide_sim_fail(nullptr);
  auto blocks = blocks_in(second, "weights", 1, 2 * mib);
  REQUIRE(blocks_of("weights") == 2);
  {
    const Current current(second);
    const Kernels kernels;
    const Stream stream;
    kernels.fill_slowly(blocks[0].address(), blocks[0].size(), 0x3c, 200, stream);
    blocks[0].expect(0x3c);
    const Current other(primary);
    CHECK(pause("weights").blocks == 2);
    CHECK(resume("weights").blocks == 2);
  }
  CHECK(intact(first));
  const Current current(second);
  CHECK(intact(blocks));
}

TEST_CASE("peer access before and after allocation", "[contexts]") {
  const auto owner = use_device(0);
  const auto accessor = use_device(1);
  const Kernels kernels;
  const Stream stream;
  const auto reaches = [&](Block& block) {
    const Current current(accessor);
    kernels.add_one(block.address(), block.size(), stream);
    const auto result = cuStreamSynchronize(stream);
    if (result == CUDA_SUCCESS) block.expect_one_more();
    return result;
  };
  auto before = blocks_in(owner, "weights", 2, 2 * mib);
  auto before_small = blocks_in(owner, "weights", 1, 3000);
  must(cuCtxEnablePeerAccess(owner, 0));
  auto after = blocks_in(owner, "weights", 1, 2 * mib);
  CHECK(reaches(before[0]) == CUDA_SUCCESS);
  CHECK(reaches(before_small[0]) == CUDA_SUCCESS);
  CHECK(reaches(after[0]) == CUDA_SUCCESS);
  pause("weights");
  auto while_parked = blocks_in(owner, "weights", 1, 2 * mib);
  CHECK(reaches(while_parked[0]) == CUDA_SUCCESS);
  resume("weights");
  CHECK(reaches(before[1]) == CUDA_SUCCESS);
  CHECK(reaches(before_small[0]) == CUDA_SUCCESS);
  CHECK(reaches(after[0]) == CUDA_SUCCESS);
  must(cuCtxDisablePeerAccess(owner));
  const Current current(owner);
  for (const auto* blocks : {&before, &before_small, &after, &while_parked}) CHECK(intact(*blocks));
}

TEST_CASE("two devices", "[contexts]") {
  const auto context_0 = use_device(0);
  const auto context_1 = use_device(1);
  const auto on_0 = blocks_in(context_0, "weights", 3, 2 * mib);
  const auto on_1 = blocks_in(context_1, "weights", 2, 3 * mib);
  const auto lora = blocks_in(context_1, "lora", 1, 2 * mib);
  const auto before_0 = used_bytes(0);
  const auto before_1 = used_bytes(1);
  const auto report = pause("weights");
  CHECK(report.blocks == 5);
  REQUIRE(report.device_count == 2);
  for (int i = 0; i < 2; ++i) {
    const auto& device = report.devices[i];
    const auto bytes = device.device == 0 ? 10 * mib : 8 * mib;
    CHECK(device.free_after == device.free_before + bytes);
  }
  CHECK(used_bytes(0) == before_0 - 10 * mib);
  CHECK(used_bytes(1) == before_1 - 8 * mib);
  CHECK(info("lora").bytes_parked == 0);

  // All or nothing: the second device has no room, so the first gets nothing either.
  {
    const Current current(context_1);
    CUdeviceptr hog = 0;
    must(cuMemAlloc(&hog, free_bytes()));
    CHECK(lowtide_resume("weights", nullptr) == LOWTIDE_ERROR_DEVICE_MEMORY);
    CHECK(info("weights").bytes_resident == 0);
    CHECK(used_bytes(0) == before_0 - 10 * mib);
    must(cuMemFree(hog));
  }
  CHECK(resume("weights").blocks == 5);
  {
    const Current current(context_0);
    CHECK(intact(on_0));
  }
  CHECK(intact(on_1));
  CHECK(intact(lora));
}

// SPDX-License-Identifier: Apache-2.0
// A failing operator new in every hook is survived: for each n, the nth allocation of liblowtide.so in a call fails.
#include <unistd.h>

#include <functional>
#include <memory>

#include "tests/catch.hpp"
#include "tests/hazards/child.hpp"
#include "tests/hazards/control.hpp"
#include "tests/hazards/other_thread.hpp"
#include "tests/hazards/program.hpp"
#include "tests/hazards/seams.hpp"

extern "C" CUresult cuCtxCreate_v2(CUcontext*, unsigned, CUdevice);

using namespace hazards;

namespace {

/// Runs `once` for n = 1, 2, ... until it says that the nth failure was not met. Returns the number of failures.
int for_each_failure(const std::function<bool(std::uint64_t)>& once) {
  int failures = 0;
  while (once(static_cast<std::uint64_t>(failures) + 1)) ++failures;
  return failures;
}

bool is_success_or_out_of_memory(CUresult result) {
  return result == CUDA_SUCCESS || result == CUDA_ERROR_OUT_OF_MEMORY;
}

/// The body of a thread that Lowtide has not seen before.
bool in_new_thread(std::uint64_t n, const std::function<void()>& body) {
  bool met = false;
  const auto context = use_device();
  OtherThread thread([&] {
    must(cuCtxSetCurrent(context));
    const FailingMemory failing(n);
    body();
    met = failing.failed();
  });
  thread.join();
  return met;
}

}  // namespace

TEST_CASE("a failing operator new in an allocation", "[short]") {
  use_device();
  const auto before = live();
  const auto blocks_before = blocks_of("weights");
  const auto failures = for_each_failure([&](std::uint64_t n) {
    bool met = false;
    for (const std::size_t size : {3 * mib, std::size_t{3000}}) {
      const Scope scope("weights");
      CUdeviceptr address = 0;
      CUresult result = CUDA_SUCCESS;
      {
        const FailingMemory failing(n);
        result = cuMemAlloc(&address, size);
        met = met || failing.failed();
      }
      REQUIRE(is_success_or_out_of_memory(result));
      if (result == CUDA_SUCCESS) must(cuMemFree(address));
    }
    return met;
  });
  CHECK(failures > 0);
  CHECK(blocks_of("weights") == blocks_before);
  CHECK(live().used_bytes[0] == before.used_bytes[0]);
  CHECK(live().physical_handles == before.physical_handles);
}

TEST_CASE("a failing operator new in the first allocation of a tag", "[short]") {
  use_device();
  int tags = 0;
  const auto failures = for_each_failure([&](std::uint64_t n) {
    const auto tag = "fresh" + std::to_string(tags++);
    const Scope scope(tag.c_str());
    CUdeviceptr address = 0;
    CUresult result = CUDA_SUCCESS;
    bool met = false;
    {
      const FailingMemory failing(n);
      result = cuMemAlloc(&address, 2 * mib);
      met = failing.failed();
    }
    REQUIRE(is_success_or_out_of_memory(result));
    if (result == CUDA_SUCCESS) must(cuMemFree(address));
    const Block next(nullptr, 2 * mib);
    CHECK(blocks_of(tag.c_str()) == 1);
    return met;
  });
  CHECK(failures > 2);
}

TEST_CASE("a failing operator new in a free", "[short]") {
  use_device();
  const auto before = used_bytes();
  (void)for_each_failure([&](std::uint64_t n) {
    bool met = false;
    for (const bool parked : {false, true}) {
      Block block("weights", 2 * mib);
      if (parked) pause("weights");
      const auto address = block.forget();
      CUresult result = CUDA_SUCCESS;
      {
        const FailingMemory failing(n);
        result = cuMemFree(address);
        met = met || failing.failed();
      }
      REQUIRE(is_success_or_out_of_memory(result));
      if (result != CUDA_SUCCESS) must(cuMemFree(address));
    }
    return met;
  });
  CHECK(used_bytes() == before);
  CHECK(blocks_of("weights") == 0);
}

TEST_CASE("a failing operator new in a thread's first launch, copy and capture", "[short]") {
  use_device();
  const Kernels kernels;
  const Stream stream;
  Block block("weights", 2 * mib);
  const auto failures = for_each_failure([&](std::uint64_t n) {
    return in_new_thread(n, [&] {
      kernels.add_one(block.address(), block.size(), stream);
      must(cuStreamSynchronize(stream));
      block.expect_one_more();
    });
  });
  CHECK(failures > 0);
  CHECK(block.intact());
  const auto in_captures = for_each_failure([&](std::uint64_t n) {
    return in_new_thread(n, [&] {
      CUgraph graph = nullptr;
      must(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
      kernels.add_one(block.address(), block.size(), stream);
      must(cuStreamEndCapture(stream, &graph));
      must(cuGraphDestroy(graph));
    });
  });
  CHECK(in_captures > 0);
  // The gate still counts right: a hold comes to rest, and the gate opens.
  CHECK(is_ok(ask(::getpid(), "pause tag=weights")));
  CHECK(is_ok(ask(::getpid(), "resume tag=weights")));
  CHECK(block.intact());
}

TEST_CASE("a failing operator new when contexts come and go", "[short]") {
  const auto primary = use_device();
  const Block block("weights", 2 * mib);
  const auto before = live();
  const auto failures = for_each_failure([&](std::uint64_t n) {
    CUcontext context = nullptr;
    bool met = false;
    {
      const FailingMemory failing(n);
      must(cuCtxCreate_v2(&context, 0, 0));
      met = failing.failed();
    }
    Block inside("weights", 3 * mib);
    Block inside_small("weights", 3000);
    CHECK(inside.intact());
    inside.forget();
    inside_small.forget();
    must(cuCtxSetCurrent(primary));
    pause("weights");
    resume("weights");
    {
      const FailingMemory failing(n);
      must(cuCtxDestroy(context));
      met = met || failing.failed();
    }
    return met;
  });
  CHECK(failures > 0);
  CHECK(blocks_of("weights") == 1);
  CHECK(block.intact());
  pause("weights");  // what the dropped blocks had of common extents goes with the next pause
  resume("weights");
  CHECK(block.intact());
  CHECK(live().used_bytes[0] == before.used_bytes[0]);
  CHECK(live().streams == before.streams);
}

TEST_CASE("a failing operator new in a pause and a resume", "[short]") {
  use_device();
  const auto blocks = make_blocks("weights", 3, 2 * mib);
  const auto small = make_blocks("weights", 2, 3000);
  const auto resident = used_bytes();
  const auto try_both = [&](std::uint64_t n, lowtide_result (*call)(const char*, lowtide_report*), bool parked_before) {
    lowtide_result result = LOWTIDE_OK;
    bool met = false;
    {
      const FailingMemory failing(n);
      result = call("weights", nullptr);
      met = failing.failed();
    }
    CHECK((result == LOWTIDE_OK || result == LOWTIDE_ERROR_HOST_BUDGET));
    // As before, or as asked.
    const bool parked = result == LOWTIDE_OK ? !parked_before : parked_before;
    CHECK(info("weights").bytes_resident == (parked ? 0 : 6 * mib + 3 + 6001));
    if (!parked) CHECK(used_bytes() == resident);
    return met;
  };
  const auto in_pause = for_each_failure([&](std::uint64_t n) {
    const bool met = try_both(n, &lowtide_pause, false);
    resume("weights");
    return met;
  });
  CHECK(in_pause > 3);
  CHECK(intact(blocks));
  const auto in_resume = for_each_failure([&](std::uint64_t n) {
    pause("weights");
    const bool met = try_both(n, &lowtide_resume, true);
    resume("weights");
    return met;
  });
  CHECK(in_resume > 3);
  CHECK(intact(blocks));
  CHECK(intact(small));
  CHECK(used_bytes() == resident);
}

TEST_CASE("a failing operator new in a hold", "[short]") {
  use_device();
  Block block("weights", 2 * mib);
  const auto failures = for_each_failure([&](std::uint64_t n) {
    bool met = false;
    {
      const FailingMemoryOfThread failing("lowtide-transit", n);
      (void)ask(::getpid(), "pause tag=weights");  // an answer, or none for want of memory
      met = failing.failed();
    }
    const bool parked = info("weights").bytes_parked > 0;
    // A gate that is closed for nothing would never open again.
    if (!parked) CHECK(says(ask(::getpid(), "status"), "\"gate\":\"open\""));
    {
      const FailingMemoryOfThread failing("lowtide-transit", n);
      (void)ask(::getpid(), "resume tag=weights");
      met = met || failing.failed();
    }
    CHECK(is_ok(ask(::getpid(), "resume tag=weights")));
    CHECK(says(ask(::getpid(), "status"), "\"gate\":\"open\""));
    CHECK(block.intact());
    return met;
  });
  CHECK(failures > 3);
}

TEST_CASE("a failing operator new in the first GPU call", "[short]") {
  const auto ending = run_victim("first-call-short-of-memory");
  CHECK(ending.status == 0);
  CHECK(ending.output == "");
}

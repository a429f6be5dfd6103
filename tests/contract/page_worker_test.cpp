// SPDX-License-Identifier: Apache-2.0
// Where the digest kernel cannot be had, a backend does everything else; and no failing driver call leaves anything.
#include "backends/cuda/page_worker.hpp"

#include <algorithm>

#include "tests/catch.hpp"
#include "tests/contract/contract_support.hpp"
#include "tests/contract/fault_plans.hpp"
#include "tests/contract/world.hpp"
#include "tests/sanitized.hpp"

using namespace lowtide;
using namespace lowtide::test;
using Catch::Matchers::Contains;

namespace {

const cuda::Driver& simulated() { return SimulatedDriver::instance().driver(); }

CUresult load_nothing(CUmodule*, const void*) { return CUDA_ERROR_UNSUPPORTED_PTX_VERSION; }
CUresult launch_nothing(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream,
                        void**, void**) {
  return CUDA_SUCCESS;
}

struct HeldBefore {
  HeldBefore() { (void)simulated(), held = held_now(); }
  Held held;
};

/// A device with a block of known bytes.
struct Stage {
  explicit Stage(const cuda::Driver& driver) : world(driver, 1) {
    const auto& block = world.add("weights", 3_MiB);
    pages = {{block.address, digest_page}, {block.address + digest_page, block.size - digest_page}};
    for (const auto& page : pages) {
      const auto* const bytes = block.bytes.data() + (page.start - block.address).value;
      expected.push_back(digest_of(bytes, page.size.value, world.backend().digest_key()));
    }
  }
  World world;
  std::vector<AddressRange> pages;
  std::vector<PageDigest> expected;
  std::vector<PageDigest> digests{2};
};

void check_all_but_digests(const cuda::Driver& driver, const char* reason) {
  Stage stage(driver);
  const auto status = stage.world.backend().digest(stage.pages, stage.digests);
  REQUIRE_FALSE(status);
  CHECK(status.error().code() == Code::unsupported);
  CHECK_THAT(status.error().message(), Contains(reason));
  REQUIRE(stage.world.pause());
  REQUIRE(stage.world.resume());
  CHECK(stage.world.complaint() == "");
}

}  // namespace

TEST_CASE("a driver that does not load the kernel gives no digests and does all else") {
  const HeldBefore before;
  cuda::Driver driver = simulated();
  driver.cuModuleLoadData = load_nothing;
  check_all_but_digests(driver, "cuModuleLoadData");
  CHECK(held_now().modules == before.held.modules);
}

TEST_CASE("a kernel that does not do what it should is not used") {
  const HeldBefore before;
  cuda::Driver driver = simulated();
  driver.cuLaunchKernel = launch_nothing;
  check_all_but_digests(driver, "something else than the host");
  CHECK(held_now().modules == before.held.modules);
  CHECK(held_now().host_allocations == before.held.host_allocations);
}

TEST_CASE("a page worker whose driver calls fail is not there, and leaves nothing") {
  FaultyDriver driver(simulated());
  const World world(simulated(), 1);
  const cuda::ContextGuard guard(simulated(), reinterpret_cast<CUcontext>(world.context().value));
  const DigestKey key(1);
  const auto context_lives = [&] { return simulated().cuCtxSynchronize() == CUDA_SUCCESS; };
  const auto runs = for_each_fault([&](const FaultyDriver::Plan& plan, const std::string& label) {
    INFO("failing: " << label);
    const Held before = held_now();
    driver.start(plan);
    auto worker = cuda::PageWorker::make(driver.table(), key);
    auto calls = driver.stop();
    const bool made = worker.has_value();
    if (made) worker->destroy();
    Held after = held_now();
    // What the driver would not take back goes with its context.
    const auto refused = [&](std::string_view name) {
      return std::any_of(calls.begin(), calls.end(), [&](const auto& call) { return !call.ok && name == call.name; });
    };
    const bool unsynchronised = refused("cuStreamSynchronize");
    if (refused("cuStreamDestroy_v2") || unsynchronised) after.streams = before.streams;
    if (refused("cuMemFreeHost") || unsynchronised) after.host_allocations = before.host_allocations;
    if (refused("cuModuleUnload") || unsynchronised) after.modules = before.modules;
    REQUIRE(after == before);
    REQUIRE(context_lives());
    REQUIRE(made == std::all_of(calls.begin(), calls.end(), [](const auto& call) { return call.ok; }));
    return calls;
  });
  CHECK(runs > 20 / fault_step);
}

TEST_CASE("a digest whose driver calls fail says so, and can be repeated") {
  FaultyDriver driver(simulated());
  Stage stage(driver.table());
  Backend& backend = stage.world.backend();
  const Held before = held_now();
  for_each_fault([&](const FaultyDriver::Plan& plan, const std::string& label) {
    INFO("failing: " << label);
    driver.start(plan);
    const auto status = backend.digest(stage.pages, stage.digests);
    auto calls = driver.stop();
    if (status)
      REQUIRE(stage.digests == stage.expected);
    else
      REQUIRE(status.error().code() == Code::driver);
    stage.digests.assign(2, {});
    REQUIRE(backend.digest(stage.pages, stage.digests));
    REQUIRE(stage.digests == stage.expected);
    REQUIRE(held_now() == before);
    return calls;
  });
}

TEST_CASE("memory may go after a digest that failed, once the copies are finished") {
  FaultyDriver driver(simulated());
  World world(driver.table(), 1);
  Backend& backend = world.backend();
  Memory memory(backend, 1);
  const std::vector<AddressRange> pages(64, memory.range);  // for some milliseconds
  std::vector<PageDigest> digests(pages.size());
  bool launched = false;
  driver.start([&](std::size_t, std::string_view name) {
    launched = launched || name == "cuLaunchKernel";
    return launched && name == "cuStreamSynchronize";
  });
  const auto status = backend.digest(pages, digests);
  driver.stop();
  REQUIRE_FALSE(status);
  REQUIRE(backend.finish_copies());
  REQUIRE(backend.unmap(memory.range));
  CHECK(backend.synchronise());  // nothing touched memory that was not there
  REQUIRE(backend.map(memory.range, memory.physical));
  REQUIRE(backend.set_access(memory.range, {}));
}

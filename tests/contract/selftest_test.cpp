// SPDX-License-Identifier: Apache-2.0
// What an owner of a device sends has to be worth something: a driver that breaks a promise fails the check of it.
#include <algorithm>

#include "backends/portable/contract.hpp"
#include "shim/cuda_ladder.hpp"
#include "tests/catch.hpp"
#include "tests/contract/world.hpp"

using namespace lowtide;
using namespace lowtide::test;

namespace {

const cuda::Driver& simulated() { return SimulatedDriver::instance().driver(); }

/// A backend over a driver that may be broken.
class Subject {
 public:
  explicit Subject(const cuda::Driver& driver, const std::string& name = "vmm") : driver_(driver) {
    CUcontext context = nullptr;
    REQUIRE(simulated().cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS);
    const auto ladder = cuda_ladder(driver_, DeviceId{0}, memory_);
    const auto found =
        std::find_if(ladder.begin(), ladder.end(), [&](const Candidate& one) { return one.name == name; });
    backend_ = std::move(*found->make("test"));
    REQUIRE(backend_->attach({reinterpret_cast<std::uintptr_t>(context)}));
  }
  Subject(const Subject&) = delete;
  Subject& operator=(const Subject&) = delete;
  ~Subject() {
    backend_.reset();
    (void)simulated().cuDevicePrimaryCtxRelease_v2(0);
  }
  Backend& operator*() { return *backend_; }

  /// The names of the checks that fail.
  std::vector<std::string> failures() {
    std::vector<std::string> names;
    for (const auto& [name, status] : portable::check_contract(*backend_)) {
      if (!status) names.emplace_back(name);
    }
    return names;
  }

 private:
  cuda::Driver driver_;
  portable::RecreatedMemory memory_;
  std::unique_ptr<Backend> backend_;
};

CUresult fill_one_more(CUdeviceptr address, unsigned char value, std::size_t size, CUstream stream) {
  return simulated().cuMemsetD8Async(address, value, size == 1001 ? size + 1 : size, stream);
}

CUresult lose_the_last_byte(CUdeviceptr address, const void* host, std::size_t size, CUstream stream) {
  return simulated().cuMemcpyHtoDAsync_v2(address, host, size == 15 ? size - 1 : size, stream);
}

CUresult answer_unknown(CUmemGenericAllocationHandle* handle, std::size_t size, const CUmemAllocationProp* properties,
                        unsigned long long flags) {
  const auto result = simulated().cuMemCreate(handle, size, properties, flags);
  return result == CUDA_ERROR_OUT_OF_MEMORY ? CUDA_ERROR_UNKNOWN : result;
}

CUresult refuse_above_16_mib(CUmemGenericAllocationHandle* handle, std::size_t size,
                             const CUmemAllocationProp* properties, unsigned long long flags) {
  if (size > (std::size_t{16} << 20)) return CUDA_ERROR_OUT_OF_MEMORY;
  return simulated().cuMemCreate(handle, size, properties, flags);
}

}  // namespace

TEST_CASE("every backend of a sound device passes, and leaves nothing") {
  for (const char* name : {"vmm", "recreate", "off"}) {
    const Held before = held_now();
    {
      Subject subject(simulated(), name);
      CHECK(subject.failures() == std::vector<std::string>{});
    }
    CHECK(held_now() == before);
  }
}

TEST_CASE("a promise that is broken fails its check, and no other") {
  cuda::Driver driver = simulated();
  SECTION("a fill that writes a byte too many") {
    driver.cuMemsetD8Async = fill_one_more;
    CHECK(Subject(driver).failures() == std::vector<std::string>{"a fill writes every byte of its range and no other"});
  }
  SECTION("a copy that loses a byte") {
    driver.cuMemcpyHtoDAsync_v2 = lose_the_last_byte;
    CHECK(Subject(driver).failures() ==
          std::vector<std::string>{"bytes copied in come out again, whatever their size and alignment"});
  }
  SECTION("a full device that is not called so") {
    driver.cuMemCreate = answer_unknown;
    CHECK(Subject(driver).failures() ==
          std::vector<std::string>{"more than the device has is refused as such, and nothing is lost"});
  }
}

TEST_CASE("the largest handle is found, and a cycle is played with what works") {
  const Held before = held_now();
  {
    cuda::Driver driver = simulated();
    Subject whole(driver);
    driver.cuMemCreate = refuse_above_16_mib;
    Subject small(driver);
    const auto of_all = portable::measure(*whole);
    const auto of_small = portable::measure(*small);
    REQUIRE((of_all && of_small));
    CHECK(of_all->largest_handle == 256_MiB);  // half of what is free
    CHECK(of_small->largest_handle == 16_MiB);
    CHECK(of_small->cycle == 16_MiB);
    CHECK(of_small->copy_in.count() > 0);
    CHECK_FALSE(of_small->moved);
  }
  CHECK(held_now() == before);
}

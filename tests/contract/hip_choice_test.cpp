// SPDX-License-Identifier: Apache-2.0
// Which way of HIP's memory a device is served, for each defect that some release has had. A case is played alone, in a
// process whose simulated device is the persona that is its tag.
#include "allocator/base/log.hpp"
#include "shim/hip_ladder.hpp"
#include "tests/catch.hpp"
#include "tests/contract/hip_under_test.hpp"
#include "tests/contract/world.hpp"

using namespace lowtide;
using namespace lowtide::test;
using Catch::Matchers::Contains;

namespace {

constexpr DeviceId device{0};

/// A device of HIP's, and what can serve it.
class Subject {
 public:
  Subject() { set_log_level(LogLevel::off); }

  std::unique_ptr<Backend> choose(const char* forced = "") {
    auto backend = choose_backend(ladder_, forced, hip::context_of(device));
    INFO((backend ? "" : backend.error().message()));
    REQUIRE(backend);
    return std::move(*backend);
  }
  Error refusal(const char* forced) { return choose_backend(ladder_, forced, hip::context_of(device)).error(); }

  /// What a trial of the first candidate with this offer says.
  portable::TrialReport tried(const std::string& name, const std::string& offer) {
    for (const auto& candidate : ladder_) {
      if (candidate.name != name || candidate.offer.find(offer) == std::string::npos) continue;
      const auto backend = candidate.make("test");
      REQUIRE(backend);
      REQUIRE((*backend)->attach(hip::context_of(device)));
      return portable::try_backend(**backend, candidate.trial);
    }
    FAIL("no such candidate");
    return {};
  }

 private:
  hip::Reservations reservations_;
  portable::RecreatedMemory memory_;
  const Ladder ladder_ = hip_ladder(simulated_hip_runtime(), device, reservations_, memory_);
};

/// The device's memory but for `left`, taken by somebody else.
class Filled {
 public:
  explicit Filled(Bytes left) {
    std::size_t free = 0;
    std::size_t total = 0;
    REQUIRE(simulated_hip_runtime().hipMemGetInfo(&free, &total) == hipSuccess);
    REQUIRE(simulated_hip_runtime().hipMalloc(&block_, free - left.value) == hipSuccess);
  }
  Filled(const Filled&) = delete;
  Filled& operator=(const Filled&) = delete;
  ~Filled() { CHECK(simulated_hip_runtime().hipFree(block_) == hipSuccess); }

 private:
  void* block_ = nullptr;
};

/// A block as large as several handles leaves and comes back with its bytes, and nothing is left.
void check_a_life(Backend& backend) {
  const Bytes free = backend.memory_info()->free;
  constexpr Bytes size = 96_MiB;
  const AddressRange range{backend.reserve(size, hip::context_of(device)).value(), size};
  const auto appear = [&] {
    const auto made = backend.create(range);
    REQUIRE(made);
    REQUIRE(backend.map(range, *made));
    REQUIRE(backend.set_access(range, {}));
    return *made;
  };
  std::vector<std::uint8_t> bytes(size.value);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::uint8_t>(i * 31 + i / 4099);
  auto physical = appear();
  REQUIRE(backend.copy_in(range, bytes.data()));
  REQUIRE(backend.finish_copies());
  REQUIRE(backend.unmap(range));
  REQUIRE(backend.release(physical));
  REQUIRE(backend.keep_address(range));
  CHECK(backend.memory_info()->free == free);
  physical = appear();
  REQUIRE(backend.copy_in(range, bytes.data()));
  std::vector<std::uint8_t> back(size.value);
  REQUIRE(backend.copy_out(back.data(), range));
  REQUIRE(backend.finish_copies());
  CHECK(back == bytes);
  REQUIRE(backend.unmap(range));
  REQUIRE(backend.release(physical));
  REQUIRE(backend.release_reservation(range));
  CHECK(backend.memory_info()->free == free);
}

}  // namespace

TEST_CASE("a healthy device is tried without a trace, and its handles have any size", "[mi300x]") {
  (void)simulated_hip_runtime();
  Subject subject;
  { (void)subject.choose("off"); }  // what the runtime itself keeps of a device is there now
  const Held before = held_now();
  {
    const auto backend = subject.choose();
    CHECK(backend->name() == std::string("vmm"));
    CHECK(backend->capabilities().stable_address);
    CHECK(backend->capabilities().export_fd);
    CHECK(backend->device_name() == "simulated MI300X");
    CHECK_THAT(backend->reason(), Contains("handles of any size") && !Contains("; no "));
    check_a_life(*backend);
  }
  CHECK(held_now() == before);
}

TEST_CASE("each backend of HIP's can be asked for, and one that is none of them is refused", "[mi300x]") {
  Subject subject;
  for (const std::string name : {"vmm", "vmm+cycle", "recreate", "off"}) {
    const auto backend = subject.choose(name.c_str());
    CHECK(backend->name() == name);
    CHECK_THAT(backend->reason(), Contains("LOWTIDE_BACKEND"));
    CHECK(backend->capabilities().gives_back == (name != "off"));
  }
  const auto refusal = subject.refusal("overlay");
  CHECK(refusal.code() == Code::config);
  CHECK_THAT(refusal.message(), Contains("vmm, vmm+cycle, recreate, off"));
}

TEST_CASE("a device without virtual memory management frees and allocates, and says why", "[mi250x-novmm]") {
  Subject subject;
  const auto backend = subject.choose();
  CHECK(backend->name() == std::string("recreate"));
  CHECK_FALSE(backend->capabilities().stable_address);
  CHECK_THAT(backend->reason(), Contains("no vmm: hipMemGetAllocationGranularity") && Contains("no vmm+cycle: hip"));
  check_a_life(*backend);
  const auto refusal = subject.refusal("vmm");
  CHECK(refusal.code() == Code::config);
  CHECK_THAT(refusal.message(), Contains("vmm cannot be had") && Contains("hipMemGetAllocationGranularity"));
}

TEST_CASE("a runtime that keeps pages as long as their address has it given up", "[rocm72-keeps-pages]") {
  Subject subject;
  CHECK(subject.tried("vmm", "any size").verdict == portable::Verdict::frees_with_address);
  const auto backend = subject.choose();
  CHECK(backend->name() == std::string("vmm+cycle"));
  CHECK_FALSE(backend->capabilities().stable_address);
  CHECK_THAT(backend->reason(), Contains("no vmm: memory comes free only when its address goes too"));
  check_a_life(*backend);
}

TEST_CASE("a runtime that gives another address than the one asked for is not trusted with them", "[moves-addresses]") {
  Subject subject;
  CHECK(subject.tried("vmm+cycle", "any size").verdict == portable::Verdict::fails);
  const auto backend = subject.choose();
  CHECK(backend->name() == std::string("recreate"));
  CHECK_THAT(backend->reason(), Contains("no vmm: memory comes free only when its address goes too") &&
                                    Contains("no vmm+cycle: ") && Contains("could not be had back"));
  check_a_life(*backend);
}

TEST_CASE("a runtime that refuses large handles while memory is free gets many small ones", "[large-handles-fail]") {
  Subject subject;
  CHECK(subject.tried("vmm", "any size").verdict == portable::Verdict::fails);
  CHECK(subject.tried("vmm", "at most 64.0 MiB").verdict == portable::Verdict::fails);
  const auto backend = subject.choose();
  CHECK(backend->name() == std::string("vmm"));
  CHECK(backend->capabilities().stable_address);
  CHECK_THAT(backend->reason(), Contains("handles of at most 2.00 MiB; no more than that: hipMemCreate"));
  check_a_life(*backend);
}

TEST_CASE("handles that a nearly full device had no room to try are not counted on", "[large-handles-fail]") {
  Subject subject;
  std::unique_ptr<Backend> backend;
  {
    const Filled filled(8_MiB);
    backend = subject.choose();
  }
  CHECK(backend->name() == std::string("vmm"));
  CHECK_THAT(backend->reason(), Contains("handles of at most 2.00 MiB; no more than that: the device had no room"));
  check_a_life(*backend);
}

TEST_CASE("where each handle takes a descriptor there are few handles, and the trial tells",
          "[descriptor-per-handle]") {
  Subject subject;
  const auto whole = subject.tried("vmm", "any size");
  CHECK(whole.descriptors_per_handle == 1);
  CHECK(whole.descriptors_left == 0);
  const auto backend = subject.choose();
  CHECK(backend->name() == std::string("vmm"));
  CHECK_THAT(backend->reason(), Contains("handles of any size"));
  check_a_life(*backend);
}

TEST_CASE("a runtime that shows mapped memory to others pauses as any other", "[ipc-on-vmm]") {
  Subject subject;
  const auto backend = subject.choose();
  CHECK(backend->name() == std::string("vmm"));
  check_a_life(*backend);
}

// SPDX-License-Identifier: Apache-2.0
// What chunks and cycling add to the port's promises: a call that fails at one chunk leaves the others as they were,
// and an address that is gone is said to be gone.
#include <dlfcn.h>
#include <sys/mman.h>

#include "tests/contract/contract_support.hpp"
#include "tests/contract/hip_under_test.hpp"
#include "tests/contract/simulated_driver.hpp"

using namespace lowtide;
using namespace lowtide::test;

namespace {

constexpr hip::VmmHabits in_chunks{.chunk = 2_MiB};
constexpr hip::VmmHabits cycling{.chunk = 2_MiB, .cycles = true};

/// Lets the driver's calls fail as planned while it lives.
class Failing {
 public:
  explicit Failing(const char* plan) { REQUIRE(plan_failures()(plan) == 0); }
  Failing(const Failing&) = delete;
  Failing& operator=(const Failing&) = delete;
  ~Failing() { (void)plan_failures()(nullptr); }

 private:
  static decltype(&::lowtide_sim_fail) plan_failures() {
    return reinterpret_cast<decltype(&::lowtide_sim_fail)>(
        ::dlsym(SimulatedDriver::instance().library(), "lowtide_sim_fail"));
  }
};

/// A reservation without memory.
struct Reserved {
  Reserved(Backend& its_backend, Bytes size) : backend(its_backend), range{backend.reserve(size).value(), size} {}
  Reserved(const Reserved&) = delete;
  Reserved& operator=(const Reserved&) = delete;
  ~Reserved() { CHECK(backend.release_reservation(range)); }
  Backend& backend;
  AddressRange range;
};

/// As any thread's mmap might get it; MAP_FAILED if somebody has some of it.
void* map_at(AddressRange range) {
  constexpr int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE;
  return ::mmap(reinterpret_cast<void*>(range.start.value), range.size.value, PROT_NONE, flags, -1, 0);
}

}  // namespace

TEST_CASE("memory whose third chunk cannot be had takes none") {
  const auto subject = make_simulated_hip(in_chunks);
  Backend& backend = subject->backend();
  const auto before = subject->held();
  {
    const Reserved place(backend, 8_MiB);
    const Failing failing("cuMemCreate:3");
    const auto created = backend.create(place.range);
    REQUIRE_FALSE(created);
    CHECK(created.error().code() == Code::device_memory);
  }
  CHECK(subject->held() == before);
}

TEST_CASE("memory whose third chunk cannot be mapped is mapped nowhere") {
  const auto subject = make_simulated_hip(in_chunks);
  Backend& backend = subject->backend();
  const Reserved place(backend, 8_MiB);
  const auto physical = backend.create(place.range).value();
  const auto before = subject->held();
  {
    const Failing failing("cuMemMap:3");
    REQUIRE_FALSE(backend.map(place.range, physical));
  }
  CHECK(subject->held() == before);
  REQUIRE(backend.map(place.range, physical));
  REQUIRE(backend.unmap(place.range));
  REQUIRE(backend.release(physical));
}

TEST_CASE("an unmap that fails half-way leaves every byte where it was, and can be repeated") {
  const auto subject = make_simulated_hip(in_chunks);
  Backend& backend = subject->backend();
  Memory memory(backend, 4);
  const auto bytes = pattern(memory.range.size.value, 3);
  write(backend, memory.range, bytes);
  for (const char* plan : {"cuMemUnmap:1", "cuMemUnmap:3", "cuMemUnmap:4"}) {
    {
      const Failing failing(plan);
      REQUIRE_FALSE(backend.unmap(memory.range));
    }
    CHECK(read(backend, memory.range) == bytes);
  }
}

TEST_CASE("an unmap that can neither go on nor be undone is finished by the release, or undone by the next map") {
  const auto subject = make_simulated_hip(in_chunks);
  Backend& backend = subject->backend();
  Memory memory(backend, 4);
  const auto bytes = pattern(memory.range.size.value, 3);
  write(backend, memory.range, bytes);
  {
    const Failing failing("cuMemUnmap:3+,cuMemMap:2");
    REQUIRE(backend.unmap(memory.range));
    CHECK_FALSE(backend.release(memory.physical));
  }
  REQUIRE(backend.map(memory.range, memory.physical));
  REQUIRE(backend.set_access(memory.range, {}));
  CHECK(read(backend, memory.range) == bytes);
  {
    const Failing failing("cuMemUnmap:3,cuMemMap:2");
    REQUIRE(backend.unmap(memory.range));
  }
  REQUIRE(backend.release(memory.physical));
  memory.furnish();
}

TEST_CASE("a release that fails half-way can be repeated, and what is mapped instead is whole") {
  const auto subject = make_simulated_hip(in_chunks);
  Backend& backend = subject->backend();
  const auto before = subject->held();
  {
    const Reserved place(backend, 8_MiB);
    const auto physical = backend.create(place.range).value();
    {
      const Failing failing("cuMemRelease:3");
      REQUIRE_FALSE(backend.release(physical));
    }
    REQUIRE(backend.map(place.range, physical));
    REQUIRE(backend.set_access(place.range, {}));
    REQUIRE(backend.fill(place.range, 5));
    REQUIRE(backend.finish_copies());
    REQUIRE(backend.unmap(place.range));
    REQUIRE(backend.release(physical));
    CHECK_FALSE(backend.release(physical));
  }
  CHECK(subject->held() == before);
}

TEST_CASE("an address that was lost while it was parked is said to be moved until it can be had again") {
  const auto subject = make_simulated_hip(cycling);
  Backend& backend = subject->backend();
  const auto before = subject->held();
  {
    const Reserved place(backend, 8_MiB);
    CHECK_FALSE(backend.capabilities().stable_address);
    CHECK_FALSE(backend.is_taken(place.range.start));
    {
      const Failing failing("cuMemAddressReserve:1");
      const auto kept = backend.keep_address(place.range);
      REQUIRE_FALSE(kept);
      CHECK(kept.error().code() == Code::moved);
    }
    {
      const Failing failing("cuMemAddressReserve:1");
      const auto created = backend.create(place.range);
      REQUIRE_FALSE(created);
      CHECK(created.error().code() == Code::moved);
    }
    const auto physical = backend.create(place.range);
    REQUIRE(physical);
    REQUIRE(backend.map(place.range, *physical));
    REQUIRE(backend.unmap(place.range));
    REQUIRE(backend.release(*physical));
    REQUIRE(backend.keep_address(place.range));
  }
  CHECK(subject->held() == before);
}

TEST_CASE("an address that was lost is no other mapping's of the process until it can be had again") {
  const auto subject = make_simulated_hip(cycling);
  Backend& backend = subject->backend();
  const AddressRange range{backend.reserve(8_MiB).value(), 8_MiB};
  {
    const Failing failing("cuMemAddressReserve:1");
    REQUIRE_FALSE(backend.keep_address(range));
  }
  CHECK(map_at(range) == MAP_FAILED);
  REQUIRE(backend.release_reservation(range));
  void* const mapping = map_at(range);
  REQUIRE(mapping != MAP_FAILED);
  ::munmap(mapping, range.size.value);
}

TEST_CASE("an address that somebody else got meanwhile is given up without harm to its owner") {
  static const hip::Runtime& real = simulated_hip_runtime();
  static void* others = nullptr;
  hip::Runtime runtime = real;
  runtime.hipMemAddressReserve = [](void** out, std::size_t size, std::size_t alignment, void* wanted,
                                    unsigned long long flags) {
    if (wanted != nullptr && others == nullptr) others = map_at({{reinterpret_cast<std::uintptr_t>(wanted)}, {size}});
    return real.hipMemAddressReserve(out, size, alignment, wanted, flags);
  };
  const auto witness = make_simulated_hip(cycling);
  const auto before = witness->held();
  {
    hip::Reservations reservations;
    hip::VmmBackend backend(reservations, runtime, DeviceId{0}, "",
                            *hip::vmm_capabilities(runtime, DeviceId{0}, cycling, true), "", cycling);
    REQUIRE(backend.attach(hip::context_of(DeviceId{0})));
    const AddressRange range{backend.reserve(8_MiB, {}).value(), 8_MiB};
    CHECK_FALSE(backend.keep_address(range));
    const auto created = backend.create(range);
    REQUIRE_FALSE(created);
    CHECK(created.error().code() == Code::moved);
    CHECK_FALSE(backend.keep_address(range));
    REQUIRE(backend.release_reservation(range));
    CHECK(map_at(range) == MAP_FAILED);  // it was the other's all the time
    ::munmap(others, range.size.value);
  }
  CHECK(witness->held() == before);
}

TEST_CASE("an address that one device has lost is not given to a block of another") {
  const auto subject = make_simulated_hip(cycling);
  const auto other = make_simulated_hip(in_chunks);
  Backend& backend = subject->backend();
  const AddressRange range{backend.reserve(8_MiB).value(), 8_MiB};
  {
    const Failing failing("cuMemAddressReserve:1");
    REQUIRE_FALSE(backend.keep_address(range));
  }
  // Among so many is the one that the runtime gave before.
  std::vector<AddressRange> others;
  for (int i = 0; i < 32; ++i) others.push_back({other->backend().reserve(8_MiB).value(), 8_MiB});
  for (const auto& one : others) CHECK((one.end() <= range.start || range.end() <= one.start));
  const auto physical = backend.create(range);  // nobody has it
  REQUIRE(physical);
  REQUIRE(backend.release(*physical));
  for (const auto& one : others) REQUIRE(other->backend().release_reservation(one));
  REQUIRE(backend.release_reservation(range));
}

TEST_CASE("what an unmap had to leave does not keep new memory from its place") {
  const auto subject = make_simulated_hip(in_chunks);
  Backend& backend = subject->backend();
  const auto before = subject->held();
  {
    const Reserved place(backend, 8_MiB);
    const auto old = backend.create(place.range).value();
    REQUIRE(backend.map(place.range, old));
    {
      const Failing failing("cuMemUnmap:3,cuMemMap:1");
      REQUIRE(backend.unmap(place.range));
    }
    const auto fresh = backend.create(place.range).value();
    REQUIRE(backend.map(place.range, fresh));
    REQUIRE(backend.unmap(place.range));
    REQUIRE(backend.release(fresh));
    REQUIRE(backend.release(old));
  }
  CHECK(subject->held() == before);
}

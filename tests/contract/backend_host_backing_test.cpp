// SPDX-License-Identifier: Apache-2.0
// Host memory behind a device address, as allocator/core/backend.hpp promises it of backends that have it.
#include <cstring>

#include "tests/contract/contract_support.hpp"

using namespace lowtide;
using namespace lowtide::test;

namespace {

/// Host memory with known bytes behind an address where the device and the host read it, and its end.
class HostMemory : public MappedMemory {
 public:
  HostMemory(Backend& its_backend, std::uint64_t granules)
      : MappedMemory(its_backend, granules), bytes(pattern(range.size.value, granules)) {
    furnish_with(backend.create_host(range.size));
    write(backend, range, bytes);
    REQUIRE(backend.unmap(range));
    REQUIRE(backend.map(range, physical));
    REQUIRE(backend.set_read_access(range, {}));
  }
  std::uint8_t* at_host() const { return reinterpret_cast<std::uint8_t*>(range.start.value); }

  Bytewise bytes;
};

void for_each_with_host_backing(const std::function<void(BackendUnderTest&)>& check) {
  for_each_mapping_backend([&](BackendUnderTest& subject) {
    const auto before = subject.held();
    const bool has = subject.backend().has_host_backing();
    CHECK(subject.held() == before);  // nothing is left of the trial
    if (subject.may_be_filled()) REQUIRE(has == subject.has_host_backing());
    if (has) check(subject);
  });
}

}  // namespace

TEST_CASE("host memory behind a device address costs no device memory") {
  for_each_with_host_backing([](BackendUnderTest& subject) {
    Backend& backend = subject.backend();
    const auto free_before = backend.memory_info()->free;
    const HostMemory memory(backend, 3);
    if (subject.may_be_filled()) CHECK(backend.memory_info()->free == free_before);
  });
}

TEST_CASE("host memory holds its bytes over mappings, and copies, kernels and the host read them at the address") {
  for_each_with_host_backing([](BackendUnderTest& subject) {
    Backend& backend = subject.backend();
    const HostMemory memory(backend, 2);
    CHECK(read(backend, memory.range) == memory.bytes);
    CHECK(std::memcmp(memory.at_host(), memory.bytes.data(), memory.bytes.size()) == 0);
    const AddressRange page{memory.range.start + Bytes{4096}, Bytes{70'000}};
    PageDigest digest{};
    const auto status = backend.digest({&page, 1}, {&digest, 1});
    if (status) CHECK(digest == digest_of(memory.bytes.data() + 4096, 70'000, backend.digest_key()));
    CHECK((status || status.error().code() == Code::unsupported));
  });
}

TEST_CASE("bytes go between device memory and host memory without the host") {
  for_each_with_host_backing([](BackendUnderTest& subject) {
    Backend& backend = subject.backend();
    const HostMemory host(backend, 2);
    const Memory device(backend, 2);
    REQUIRE(backend.copy_within(device.range, host.range.start));
    REQUIRE(backend.finish_copies());
    CHECK(read(backend, device.range) == host.bytes);
    const auto other = pattern(50'001, 9);
    write(backend, device.part({777}, {other.size()}), other);
    REQUIRE(backend.copy_within(device.part({1'000'003}, {other.size()}), device.range.start + Bytes{777}));
    REQUIRE(backend.finish_copies());
    CHECK(read(backend, device.part({1'000'003}, {other.size()})) == other);
  });
}

TEST_CASE("what the host writes behind a device address is what the device reads") {
  for_each_with_host_backing([](BackendUnderTest& subject) {
    Backend& backend = subject.backend();
    HostMemory memory(backend, 1);
    std::memset(memory.at_host() + 5000, 0x77, 3000);
    std::memset(memory.bytes.data() + 5000, 0x77, 3000);
    CHECK(read(backend, memory.range) == memory.bytes);
  });
}

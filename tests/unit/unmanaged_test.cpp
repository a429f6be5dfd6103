// SPDX-License-Identifier: Apache-2.0
#include "shim/observation/unmanaged.hpp"

#include "tests/catch.hpp"

using namespace lowtide;
using trace::Memory;

namespace {

Unmanaged::Piece piece(Memory kind, Bytes bytes, std::uintptr_t context = 0) {
  return {kind, DeviceId{0}, bytes, {context}, 0};
}

Bytes sum(const Unmanaged& unmanaged, Memory kind) {
  const auto sums = unmanaged.sums();
  const auto found = sums.find(DeviceId{0});
  return found == sums.end() ? Bytes{} : found->second[static_cast<std::size_t>(kind)];
}

}  // namespace

TEST_CASE("memory, handles and arrays of one number are three things") {
  Unmanaged unmanaged;
  unmanaged.add(1, piece(Memory::driver, 1_MiB));
  unmanaged.add(1, piece(Memory::handle, 2_MiB));
  unmanaged.add(1, piece(Memory::array, 4_MiB));
  CHECK(unmanaged.release(1)->bytes == 2_MiB);
  CHECK(unmanaged.remove(Memory::array, 1)->bytes == 4_MiB);
  // Whatever call frees it.
  CHECK(unmanaged.remove(Memory::async, 1)->kind == Memory::driver);
  CHECK_FALSE(unmanaged.remove(Memory::driver, 1));
  CHECK(sum(unmanaged, Memory::driver) == Bytes{});
}

TEST_CASE("a handle's memory stays as long as it is mapped") {
  Unmanaged unmanaged;
  unmanaged.add(7, piece(Memory::handle, 4_MiB));
  unmanaged.map({{0x1000}, 2_MiB}, 7);
  unmanaged.map({{0x400000}, 2_MiB}, 7);
  CHECK_FALSE(unmanaged.release(7));
  CHECK(unmanaged.unmap({{0x1000}, 2_MiB}).empty());
  CHECK(sum(unmanaged, Memory::handle) == 4_MiB);
  const auto gone = unmanaged.unmap({{0x400000}, 2_MiB});
  REQUIRE(gone.size() == 1);
  CHECK(gone[0].address == 7);
  CHECK(sum(unmanaged, Memory::handle) == Bytes{});
}

TEST_CASE("a handle's memory stays as long as somebody has a reference") {
  Unmanaged unmanaged;
  unmanaged.add(7, piece(Memory::handle, 4_MiB));
  unmanaged.retain(7);
  CHECK_FALSE(unmanaged.release(7));
  CHECK(unmanaged.release(7));
  unmanaged.retain(8);
  CHECK_FALSE(unmanaged.release(8));
}

TEST_CASE("one unmap takes away several mappings") {
  Unmanaged unmanaged;
  for (std::uint64_t handle = 1; handle <= 3; ++handle) {
    unmanaged.add(handle, piece(Memory::handle, 2_MiB));
    unmanaged.map({{handle * 0x200000}, 2_MiB}, handle);
    CHECK_FALSE(unmanaged.release(handle));
  }
  CHECK(unmanaged.unmap({{0x200000}, 4_MiB}).size() == 2);
  CHECK(sum(unmanaged, Memory::handle) == 2_MiB);
}

TEST_CASE("an address that is given anew counts once") {
  Unmanaged unmanaged;
  unmanaged.add(1, piece(Memory::driver, 1_MiB));
  unmanaged.add(1, piece(Memory::async, 3_MiB));
  CHECK(sum(unmanaged, Memory::driver) == Bytes{});
  CHECK(sum(unmanaged, Memory::async) == 3_MiB);
}

TEST_CASE("a context takes along what belongs to it, and nothing else") {
  Unmanaged unmanaged;
  unmanaged.add(1, piece(Memory::driver, 1_MiB, 5));
  unmanaged.add(2, piece(Memory::host_pinned, 1_MiB, 5));
  unmanaged.add(3, piece(Memory::async, 1_MiB));
  unmanaged.add(4, piece(Memory::driver, 1_MiB, 6));
  CHECK(unmanaged.remove_all_of({5}).size() == 2);
  CHECK(sum(unmanaged, Memory::driver) == 1_MiB);
  CHECK(sum(unmanaged, Memory::async) == 1_MiB);
}

// SPDX-License-Identifier: Apache-2.0
#include <sys/stat.h>

#include <array>
#include <numeric>
#include <string>
#include <string_view>

#include "tests/unit/simulated_gpu.hpp"

namespace {

/// Bytes of the host's memory behind the physical memory of all devices.
std::uint64_t host_bytes() {
  std::uint64_t sum = 0;
  for (int file = 0; file < 256; ++file) {
    std::array<char, 128> link{};
    const auto length = ::readlink(("/proc/self/fd/" + std::to_string(file)).c_str(), link.data(), link.size());
    const std::string_view name(link.data(), length < 0 ? 0 : static_cast<std::size_t>(length));
    struct stat status {};
    const bool ours = name.find("memfd:lowtide-sim") != std::string_view::npos;
    if (ours && ::fstat(file, &status) == 0) sum += static_cast<std::uint64_t>(status.st_blocks) * 512;
  }
  return sum;
}

}  // namespace

TEST_CASE("given back memory returns to the host") {
  const TestContext context;
  const bool exported = GENERATE(false, true);
  const auto before = host_bytes();
  {
    Virtual memory(8 * MiB);
    memory.map();
    REQUIRE(cuMemsetD8(memory.address, 1, memory.size) == CUDA_SUCCESS);
    if (exported) {
      int file = -1;
      const auto type = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
      REQUIRE(cuMemExportToShareableHandle(&file, memory.handle, type, 0) == CUDA_SUCCESS);
      ::close(file);
    }
    CHECK(host_bytes() == before + memory.size);
  }
  CHECK(host_bytes() == before);
}

TEST_CASE("unmapped memory faults, mapped memory without access faults too") {
  const TestContext context;
  Virtual memory(4 * MiB);
  CHECK_FALSE(readable(memory.address));
  REQUIRE(cuMemMap(memory.address, memory.size, 0, memory.handle, 0) == CUDA_SUCCESS);
  CHECK_FALSE(readable(memory.address));
  REQUIRE(allow(memory.address, memory.size) == CUDA_SUCCESS);
  CHECK(readable(memory.address));
  CHECK(readable(memory.address + memory.size - 1));
  REQUIRE(allow(memory.address, memory.size, 0, CU_MEM_ACCESS_FLAGS_PROT_NONE) == CUDA_SUCCESS);
  CHECK_FALSE(readable(memory.address));
  REQUIRE(allow(memory.address, memory.size) == CUDA_SUCCESS);
  memory.unmap();
  CHECK_FALSE(readable(memory.address));
}

TEST_CASE("bytes survive while their memory is mapped nowhere, and at another address") {
  const TestContext context;
  Virtual memory(4 * MiB);
  std::vector<unsigned char> written(memory.size);
  std::iota(written.begin(), written.end(), static_cast<unsigned char>(3));
  memory.map();
  REQUIRE(cuMemcpyHtoD(memory.address, written.data(), written.size()) == CUDA_SUCCESS);
  memory.unmap();
  memory.map();
  CHECK(bytes_at(memory.address, memory.size) == written);
  memory.unmap();

  CUdeviceptr elsewhere = 0;
  REQUIRE(cuMemAddressReserve(&elsewhere, memory.size, 0, 0, 0) == CUDA_SUCCESS);
  REQUIRE(cuMemMap(elsewhere, memory.size, 0, memory.handle, 0) == CUDA_SUCCESS);
  REQUIRE(allow(elsewhere, memory.size) == CUDA_SUCCESS);
  CHECK(bytes_at(elsewhere, memory.size) == written);
  REQUIRE(cuMemUnmap(elsewhere, memory.size) == CUDA_SUCCESS);
  REQUIRE(cuMemAddressFree(elsewhere, memory.size) == CUDA_SUCCESS);
}

TEST_CASE("memory is clear when it is created, whatever its pages held before") {
  const TestContext context;
  {
    Virtual first(2 * MiB);
    first.map();
    REQUIRE(cuMemsetD8(first.address, 0xee, first.size) == CUDA_SUCCESS);
  }
  Virtual second(2 * MiB);
  second.map();
  CHECK(all_equal(second.address, second.size, 0));
}

TEST_CASE("released memory stays while it is mapped and returns to the device at the unmap") {
  const TestContext context;
  const auto before = free_memory();
  Virtual memory(4 * MiB);
  memory.map();
  REQUIRE(cuMemsetD8(memory.address, 5, memory.size) == CUDA_SUCCESS);
  REQUIRE(cuMemRelease(memory.handle) == CUDA_SUCCESS);
  CHECK(cuMemRelease(memory.handle) == CUDA_ERROR_INVALID_VALUE);
  CHECK(all_equal(memory.address, memory.size, 5));
  CHECK(before - free_memory() == memory.size);

  CUmemGenericAllocationHandle again = 0;
  REQUIRE(cuMemRetainAllocationHandle(&again, reinterpret_cast<void*>(memory.address + MiB)) == CUDA_SUCCESS);
  CHECK(again == memory.handle);
  REQUIRE(cuMemRelease(again) == CUDA_SUCCESS);
  memory.unmap();
  memory.handle = 0;
  CHECK(free_memory() == before);
}

TEST_CASE("a mapping is whole: offset 0, the handle's size, inside one reservation, nothing there yet") {
  const TestContext context;
  const auto properties = device_memory();
  CUdeviceptr range = 0;
  CUmemGenericAllocationHandle a = 0;
  CUmemGenericAllocationHandle b = 0;
  REQUIRE(cuMemAddressReserve(&range, 8 * MiB, 0, 0, 0) == CUDA_SUCCESS);
  REQUIRE(cuMemCreate(&a, 4 * MiB, &properties, 0) == CUDA_SUCCESS);
  REQUIRE(cuMemCreate(&b, 4 * MiB, &properties, 0) == CUDA_SUCCESS);

  CHECK(cuMemMap(range, 2 * MiB, 0, a, 0) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuMemMap(range, 2 * MiB, 2 * MiB, a, 0) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuMemMap(range + MiB, 4 * MiB, 0, a, 0) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuMemMap(range + 6 * MiB, 4 * MiB, 0, a, 0) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuMemMap(range, 4 * MiB, 0, 12345, 0) == CUDA_ERROR_INVALID_VALUE);
  REQUIRE(cuMemMap(range, 4 * MiB, 0, a, 0) == CUDA_SUCCESS);
  CHECK(cuMemMap(range, 4 * MiB, 0, b, 0) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuMemMap(range + 2 * MiB, 4 * MiB, 0, b, 0) == CUDA_ERROR_INVALID_VALUE);
  REQUIRE(cuMemMap(range + 4 * MiB, 4 * MiB, 0, b, 0) == CUDA_SUCCESS);

  CHECK(allow(range, 6 * MiB) == CUDA_ERROR_INVALID_VALUE);
  REQUIRE(allow(range, 8 * MiB) == CUDA_SUCCESS);
  CHECK(cuMemUnmap(range, 2 * MiB) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuMemUnmap(range + 2 * MiB, 4 * MiB) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuMemAddressFree(range, 8 * MiB) == CUDA_ERROR_INVALID_VALUE);
  REQUIRE(cuMemUnmap(range, 8 * MiB) == CUDA_SUCCESS);
  CHECK(cuMemAddressFree(range, 4 * MiB) == CUDA_ERROR_INVALID_VALUE);
  REQUIRE(cuMemAddressFree(range, 8 * MiB) == CUDA_SUCCESS);
  REQUIRE(cuMemRelease(a) == CUDA_SUCCESS);
  REQUIRE(cuMemRelease(b) == CUDA_SUCCESS);
}

TEST_CASE("a reservation keeps its alignment and comes back at a wanted address") {
  const TestContext context;
  CUdeviceptr first = 0;
  REQUIRE(cuMemAddressReserve(&first, 2 * MiB, 64 * MiB, 0, 0) == CUDA_SUCCESS);
  CHECK(first % (64 * MiB) == 0);
  REQUIRE(cuMemAddressFree(first, 2 * MiB) == CUDA_SUCCESS);
  CUdeviceptr second = 0;
  REQUIRE(cuMemAddressReserve(&second, 2 * MiB, 0, first, 0) == CUDA_SUCCESS);
  CHECK(second == first);
  CUdeviceptr third = 0;
  REQUIRE(cuMemAddressReserve(&third, 2 * MiB, 0, first, 0) == CUDA_SUCCESS);
  CHECK(third != first);
  REQUIRE(cuMemAddressFree(second, 2 * MiB) == CUDA_SUCCESS);
  REQUIRE(cuMemAddressFree(third, 2 * MiB) == CUDA_SUCCESS);
  CHECK(cuMemAddressReserve(&third, MiB, 0, 0, 0) == CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("a copy to parked memory is an error that sticks to the context and to no other") {
  const TestContext healthy;
  Virtual memory(2 * MiB);
  {
    const TestContext context;
    char byte = 0;
    CHECK(cuMemcpyHtoD(memory.address, &byte, 1) == CUDA_ERROR_ILLEGAL_ADDRESS);
    CHECK(cuCtxSynchronize() == CUDA_ERROR_ILLEGAL_ADDRESS);
    CUdeviceptr block = 0;
    CHECK(cuMemAlloc(&block, 1) == CUDA_ERROR_ILLEGAL_ADDRESS);
  }
  CHECK(cuCtxSynchronize() == CUDA_SUCCESS);
}

TEST_CASE("an asynchronous touch of parked memory is an error of the next synchronise") {
  const TestContext outer;
  Virtual memory(2 * MiB);
  const TestContext context;
  CHECK(cuMemsetD8Async(memory.address, 1, memory.size, nullptr) == CUDA_SUCCESS);
  CHECK(cuCtxSynchronize() == CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST_CASE("a copy that runs past its block is refused and does no harm") {
  const TestContext context;
  CUdeviceptr block = 0;
  REQUIRE(cuMemAlloc(&block, 1000) == CUDA_SUCCESS);
  std::vector<char> host(2000);
  CHECK(cuMemcpyHtoD(block, host.data(), 1001) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuMemcpyHtoD(block + 900, host.data(), 101) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuMemcpyDtoH(host.data(), reinterpret_cast<CUdeviceptr>(host.data()), 1) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuMemcpyHtoD(block, host.data(), 1000) == CUDA_SUCCESS);
  CHECK(cuMemFree(block) == CUDA_SUCCESS);
  CHECK(cuMemFree(block) == CUDA_ERROR_INVALID_VALUE);
  CHECK_FALSE(readable(block));
}

TEST_CASE("requests the driver cannot mean are refused") {
  const TestContext context;
  CUdeviceptr block = 0;
  CHECK(cuMemAlloc(&block, 0) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuMemAlloc(nullptr, 1) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuMemAlloc(&block, ~std::size_t{0}) == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(cuMemFree(0x1234) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuMemFree(0) == CUDA_SUCCESS);
  CUmemGenericAllocationHandle handle = 0;
  auto properties = device_memory();
  CHECK(cuMemCreate(&handle, MiB, &properties, 0) == CUDA_ERROR_INVALID_VALUE);
  properties.location.id = 99;
  CHECK(cuMemCreate(&handle, 2 * MiB, &properties, 0) == CUDA_ERROR_INVALID_DEVICE);
  CHECK(cuMemHostUnregister(&block) == CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
}

TEST_CASE("a legacy IPC handle exists for plain memory only") {
  const TestContext context;
  CUipcMemHandle handle{};
  CUdeviceptr block = 0;
  REQUIRE(cuMemAlloc(&block, MiB) == CUDA_SUCCESS);
  CHECK(cuIpcGetMemHandle(&handle, block) == CUDA_SUCCESS);
  Virtual memory(2 * MiB);
  memory.map();
  CHECK(cuIpcGetMemHandle(&handle, memory.address) == CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("an exported memory is one memory: its bytes, its mappings, its charge") {
  const TestContext context;
  Virtual memory(4 * MiB);
  memory.map();
  REQUIRE(cuMemsetD8(memory.address, 9, memory.size) == CUDA_SUCCESS);
  const auto free_before = free_memory();
  int file = -1;
  REQUIRE(cuMemExportToShareableHandle(&file, memory.handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) ==
          CUDA_SUCCESS);
  CHECK(all_equal(memory.address, memory.size, 9));
  CUmemGenericAllocationHandle imported = 0;
  REQUIRE(cuMemImportFromShareableHandle(&imported, reinterpret_cast<void*>(static_cast<std::intptr_t>(file)),
                                         CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) == CUDA_SUCCESS);
  ::close(file);
  CHECK(free_memory() == free_before);
  CUdeviceptr second = 0;
  REQUIRE(cuMemAddressReserve(&second, memory.size, 0, 0, 0) == CUDA_SUCCESS);
  REQUIRE(cuMemMap(second, memory.size, 0, imported, 0) == CUDA_SUCCESS);
  REQUIRE(allow(second, memory.size) == CUDA_SUCCESS);
  REQUIRE(cuMemsetD8(second, 4, memory.size) == CUDA_SUCCESS);
  CHECK(all_equal(memory.address, memory.size, 4));
  REQUIRE(cuMemUnmap(second, memory.size) == CUDA_SUCCESS);
  REQUIRE(cuMemRelease(imported) == CUDA_SUCCESS);
  REQUIRE(cuMemAddressFree(second, memory.size) == CUDA_SUCCESS);
}

TEST_CASE("addresses are described as the driver describes them") {
  const TestContext context;
  CUdeviceptr block = 0;
  REQUIRE(cuMemAlloc(&block, MiB) == CUDA_SUCCESS);
  CUdeviceptr base = 0;
  std::size_t size = 0;
  REQUIRE(cuMemGetAddressRange(&base, &size, block + 77) == CUDA_SUCCESS);
  CHECK(base == block);
  CHECK(size == MiB);
  CUcontext owner = nullptr;
  REQUIRE(cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, block) == CUDA_SUCCESS);
  CHECK(owner == context.get());

  int stranger = 0;
  unsigned type = 77;
  CUpointer_attribute attribute = CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
  void* out = &type;
  const auto unknown = reinterpret_cast<CUdeviceptr>(&stranger);
  CHECK(cuPointerGetAttribute(&type, attribute, unknown) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuPointerGetAttributes(1, &attribute, &out, unknown) == CUDA_SUCCESS);
  CHECK(type == 0);
}

TEST_CASE("rows are copied between pitches") {
  const TestContext context;
  CUdeviceptr block = 0;
  std::size_t pitch = 0;
  REQUIRE(cuMemAllocPitch(&block, &pitch, 100, 3, 4) == CUDA_SUCCESS);
  CHECK(pitch >= 100);
  std::vector<unsigned char> host(300);
  std::iota(host.begin(), host.end(), static_cast<unsigned char>(0));
  CUDA_MEMCPY2D copy{};
  copy.srcMemoryType = CU_MEMORYTYPE_HOST;
  copy.srcHost = host.data();
  copy.srcPitch = 100;
  copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.dstDevice = block;
  copy.dstPitch = pitch;
  copy.WidthInBytes = 100;
  copy.Height = 3;
  REQUIRE(cuMemcpy2D(&copy) == CUDA_SUCCESS);
  const auto bytes = bytes_at(block, 3 * pitch);
  for (std::size_t row = 0; row < 3; ++row) CHECK(bytes[row * pitch + 99] == host[row * 100 + 99]);
}

TEST_CASE("nothing is left behind") {
  const TestContext context;
  const auto before = live();
  {
    Virtual memory(2 * MiB);
    memory.map();
    CUdeviceptr block = 0;
    REQUIRE(cuMemAlloc(&block, 5 * MiB) == CUDA_SUCCESS);
    std::vector<char> host(MiB);
    REQUIRE(cuMemHostRegister(host.data(), host.size(), 0) == CUDA_SUCCESS);
    CHECK(cuMemHostRegister(host.data() + 1, 1, 0) == CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    const auto during = live();
    CHECK(during.physical_handles == before.physical_handles + 1);
    CHECK(during.mappings == before.mappings + 1);
    CHECK(during.reservations == before.reservations + 1);
    CHECK(during.blocks == before.blocks + 1);
    CHECK(during.host_registrations == before.host_registrations + 1);
    CHECK(during.used_bytes[0] == before.used_bytes[0] + 7 * MiB);
    REQUIRE(cuMemHostUnregister(host.data()) == CUDA_SUCCESS);
    REQUIRE(cuMemFree(block) == CUDA_SUCCESS);
  }
  const auto after = live();
  CHECK(after.physical_handles == before.physical_handles);
  CHECK(after.mappings == before.mappings);
  CHECK(after.reservations == before.reservations);
  CHECK(after.blocks == before.blocks);
  CHECK(after.host_registrations == before.host_registrations);
  CHECK(after.used_bytes[0] == before.used_bytes[0]);
}

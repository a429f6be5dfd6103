// SPDX-License-Identifier: Apache-2.0
// Pausing, resuming, allocating and freeing in one thread.
#include <algorithm>

#include "tests/catch.hpp"
#include "tests/hazards/program.hpp"

using namespace hazards;

TEST_CASE("pause twice", "[memory]") {
  use_device();
  const auto blocks = make_blocks("weights", 3, 3 * mib);
  const auto first = pause("weights");
  CHECK(first.blocks == 3);
  CHECK(first.bytes_parked == 9 * mib + 3);
  const auto used = used_bytes();
  const auto second = pause("weights");
  CHECK(second.blocks == 0);
  CHECK(second.bytes_parked == 0);
  CHECK(used_bytes() == used);
  CHECK(info("weights").bytes_backup >= 9 * mib);
  resume("weights");
  CHECK(intact(blocks));
}

TEST_CASE("resume twice", "[memory]") {
  use_device();
  const auto blocks = make_blocks("weights", 3, 3 * mib);
  pause("weights");
  const auto first = resume("weights");
  CHECK(first.blocks == 3);
  const auto used = used_bytes();
  const auto second = resume("weights");
  CHECK(second.blocks == 0);
  CHECK(second.bytes_parked == 0);
  CHECK(used_bytes() == used);
  CHECK(intact(blocks));
}

TEST_CASE("pause all after pausing one tag", "[memory]") {
  use_device();
  const auto weights = make_blocks("weights", 2, 2 * mib);
  const auto lora = make_blocks("lora", 3, mib);
  const auto before = used_bytes();
  CHECK(pause("weights").blocks == 2);
  CHECK(pause(nullptr).blocks == 3);
  CHECK(info("weights").bytes_resident == 0);
  CHECK(info("lora").bytes_resident == 0);
  CHECK(resume(nullptr).blocks == 5);
  CHECK(used_bytes() == before);
  CHECK(intact(weights));
  CHECK(intact(lora));
}

TEST_CASE("allocate in a paused tag and then resume", "[memory]") {
  use_device();
  const auto early = make_blocks("weights", 2, 3 * mib);
  const Block early_small("weights", 5000);
  pause("weights");
  const auto late = make_blocks("weights", 2, 2 * mib);
  const Block late_small("weights", 4000);
  CHECK(intact(late));
  CHECK(late_small.intact());
  CHECK(info("weights").bytes_resident == 4 * mib + 1 + 4000);
  const auto report = resume("weights");
  CHECK(report.blocks == 3);
  CHECK(info("weights").bytes_parked == 0);
  CHECK(intact(early));
  CHECK(early_small.intact());
  CHECK(intact(late));
  CHECK(late_small.intact());
}

TEST_CASE("free while parked", "[memory]") {
  use_device();
  const auto before = live();
  auto blocks = make_blocks("weights", 4, 2 * mib);
  pause("weights");
  CHECK(blocks[1].free() == CUDA_SUCCESS);
  CHECK(blocks[3].free() == CUDA_SUCCESS);
  CHECK(resume("weights").blocks == 2);
  CHECK(blocks[0].intact());
  CHECK(blocks[2].intact());
  pause("weights");
  blocks.clear();
  CHECK(blocks_of("weights") == 0);
  CHECK(info("weights").bytes_backup == 0);
  CHECK(resume("weights").blocks == 0);
  CHECK(live().mappings == before.mappings);
  CHECK(used_bytes() == before.used_bytes[0]);
}

TEST_CASE("one of two neighbours freed", "[memory]") {
  use_device();
  const auto before = used_bytes();
  {
    auto blocks = make_blocks("weights", 8, 3000);
    CHECK(used_bytes() == before + 2 * mib);  // all of them in one extent
    CHECK(blocks[0].free() == CUDA_SUCCESS);
    CHECK(blocks[1].intact());
    pause("weights");
    CHECK(used_bytes() == before);
    CHECK(blocks[2].free() == CUDA_SUCCESS);
    resume("weights");
    CHECK(blocks[1].intact());
    for (std::size_t i = 3; i < blocks.size(); ++i) CHECK(blocks[i].intact());
    const Block in_the_gap("weights", 2500);
    CHECK(used_bytes() == before + 2 * mib);
    CHECK(in_the_gap.intact());
    CHECK(blocks[1].intact());
    CHECK(blocks[3].intact());
  }
  CHECK(used_bytes() == before);
}

TEST_CASE("size 0", "[memory]") {
  use_device();
  CUdeviceptr bare = 1;
  CUdeviceptr tagged = 1;
  const auto expected = cuMemAlloc(&bare, 0);
  const Scope scope("weights");
  CHECK(cuMemAlloc(&tagged, 0) == expected);
  CHECK(tagged == bare);
  CHECK(cuMemAlloc(nullptr, 4096) == CUDA_ERROR_INVALID_VALUE);
  CHECK(blocks_of("weights") == 0);
}

TEST_CASE("a size that no device has", "[memory]") {
  use_device();
  const Scope scope("weights");
  CUdeviceptr address = 1;
  CHECK(cuMemAlloc(&address, std::size_t{1} << 40) == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(cuMemAlloc(&address, ~std::size_t{0}) == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(cuMemAlloc(&address, ~std::size_t{0} - 5 * mib) == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(address == 1);
  CHECK(blocks_of("weights") == 0);
}

TEST_CASE("addresses are aligned to 512", "[memory]") {
  use_device();
  const Scope scope("weights");
  std::vector<CUdeviceptr> addresses;
  for (const std::size_t size : {1UL, 3UL, 511UL, 513UL, 70'000UL, 2 * mib - 1, 2 * mib, 2 * mib + 1}) {
    CUdeviceptr address = 0;
    must(cuMemAlloc(&address, size));
    CHECK(address % 512 == 0);
    addresses.push_back(address);
  }
  std::sort(addresses.begin(), addresses.end());
  CHECK(std::adjacent_find(addresses.begin(), addresses.end()) == addresses.end());
  for (const auto address : addresses) must(cuMemFree(address));
}

TEST_CASE("pitched memory is parked and comes back", "[memory]") {
  use_device();
  const Scope scope("weights");
  CUdeviceptr address = 0;
  std::size_t pitch = 0;
  CUdeviceptr untouched = 1;
  CHECK(cuMemAllocPitch(&untouched, &pitch, 1000, 300, 3) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuMemAllocPitch(&untouched, &pitch, 0, 300, 4) == CUDA_ERROR_INVALID_VALUE);
  CHECK(untouched == 1);
  must(cuMemAllocPitch(&address, &pitch, 1000, 300, 4));
  CHECK(pitch == 1024);
  must(cuMemsetD8(address, 0x5a, pitch * 300));
  CHECK(pause("weights").bytes_parked == 1024 * 300);
  resume("weights");
  std::vector<std::uint8_t> found(pitch * 300);
  must(cuMemcpyDtoH(found.data(), address, found.size()));
  CHECK(found == std::vector<std::uint8_t>(found.size(), 0x5a));
  must(cuMemFree(address));
  CHECK(blocks_of("weights") == 0);
}

TEST_CASE("double free, free of an inner pointer", "[memory]") {
  use_device();
  auto blocks = make_blocks("weights", 2, 2 * mib);
  auto small = make_blocks("weights", 2, 4000);
  CHECK(cuMemFree(blocks[0].address() + 512) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuMemFree(small[0].address() + 512) == CUDA_ERROR_INVALID_VALUE);
  pause("weights");
  CHECK(cuMemFree(blocks[0].address() + 512) == CUDA_ERROR_INVALID_VALUE);
  resume("weights");
  const auto gone = blocks[1].address();
  const auto small_gone = small[1].address();
  CHECK(blocks[1].free() == CUDA_SUCCESS);
  CHECK(small[1].free() == CUDA_SUCCESS);
  CHECK(cuMemFree(gone) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuMemFree(small_gone) == CUDA_ERROR_INVALID_VALUE);
  CHECK(blocks_of("weights") == 2);
  CHECK(blocks[0].intact());
  CHECK(small[0].intact());
}

TEST_CASE("every free recognises a block", "[memory]") {
  use_device();
  const auto before = used_bytes();
  const Stream stream;
  Block a("weights", 2 * mib);
  Block b("weights", 2 * mib);
  CHECK(cuMemFreeAsync(a.forget(), stream) == CUDA_SUCCESS);
  pause("weights");
  CHECK(cuMemFreeAsync(b.forget(), stream) == CUDA_SUCCESS);
  resume("weights");
  CHECK(blocks_of("weights") == 0);
  CHECK(used_bytes() == before);
}

TEST_CASE("pause with no free device byte", "[memory]") {
  use_device();
  const auto blocks = make_blocks("weights", 4, 4 * mib);
  std::vector<CUdeviceptr> hog;
  for (std::size_t piece = 64 * mib; piece >= 4 * kib; piece /= 2) {
    for (CUdeviceptr address = 0; cuMemAlloc(&address, piece) == CUDA_SUCCESS;) hog.push_back(address);
  }
  REQUIRE(free_bytes() == 0);
  CHECK(pause("weights").bytes_parked == 16 * mib + 6);
  CHECK(free_bytes() >= 16 * mib);
  CHECK(resume("weights").blocks == 4);
  CHECK(free_bytes() == 0);
  for (const auto address : hog) must(cuMemFree(address));
  CHECK(intact(blocks));
}

TEST_CASE("out of device memory on a resume", "[memory]") {
  use_device();
  const auto blocks = make_blocks("weights", 4, 16 * mib);
  pause("weights");
  CUdeviceptr hog = 0;
  must(cuMemAlloc(&hog, free_bytes() - mib));
  CHECK(lowtide_resume("weights", nullptr) == LOWTIDE_ERROR_DEVICE_MEMORY);
  CHECK(std::string(lowtide_last_error()).find("1.00 MiB") != std::string::npos);
  CHECK(info("weights").bytes_resident == 0);
  CHECK(free_bytes() == mib);
  must(cuMemFree(hog));
  resume("weights");
  CHECK(intact(blocks));
}

// SPDX-License-Identifier: Apache-2.0
// What the driver says of a block, compared with what it says of plain memory; and memory that goes to others.
#include "tests/catch.hpp"
#include "tests/hazards/child.hpp"
#include "tests/hazards/program.hpp"

using namespace hazards;

namespace {

/// What an application can learn of the memory at an address, relative to the address.
struct Answers {
  CUresult range_result = CUDA_ERROR_UNKNOWN;
  std::uint64_t offset = 0;
  std::size_t size = 0;
  CUcontext context = nullptr;
  unsigned type = 0;
  int ordinal = -1;
  unsigned managed = 7;
  std::uint64_t pointer_offset = 1;
  std::uint64_t start_offset = 0;
  std::size_t range_size = 0;
  std::vector<CUresult> results;

  bool operator==(const Answers& other) const {
    return range_result == other.range_result && offset == other.offset && size == other.size &&
           context == other.context && type == other.type && ordinal == other.ordinal && managed == other.managed &&
           pointer_offset == other.pointer_offset && start_offset == other.start_offset &&
           range_size == other.range_size && results == other.results;
  }
};

Answers ask_range(CUdeviceptr address) {
  Answers answers;
  CUdeviceptr base = 0;
  answers.range_result = cuMemGetAddressRange(&base, &answers.size, address);
  answers.offset = address - base;
  return answers;
}

Answers ask_one_by_one(CUdeviceptr address) {
  Answers answers = ask_range(address);
  CUdeviceptr pointer = 0;
  CUdeviceptr start = 0;
  const auto get = [&](void* data, CUpointer_attribute attribute) {
    answers.results.push_back(cuPointerGetAttribute(data, attribute, address));
  };
  get(&answers.context, CU_POINTER_ATTRIBUTE_CONTEXT);
  get(&answers.type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
  get(&answers.ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL);
  get(&answers.managed, CU_POINTER_ATTRIBUTE_IS_MANAGED);
  get(&pointer, CU_POINTER_ATTRIBUTE_DEVICE_POINTER);
  get(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR);
  get(&answers.range_size, CU_POINTER_ATTRIBUTE_RANGE_SIZE);
  answers.pointer_offset = address - pointer;
  answers.start_offset = address - start;
  return answers;
}

Answers ask_together(CUdeviceptr address) {
  Answers answers = ask_range(address);
  CUdeviceptr pointer = 0;
  CUdeviceptr start = 0;
  CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_CONTEXT,        CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                      CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                      CU_POINTER_ATTRIBUTE_DEVICE_POINTER, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
                                      CU_POINTER_ATTRIBUTE_RANGE_SIZE};
  void* data[] = {&answers.context, &answers.type, &answers.ordinal,   &answers.managed,
                  &pointer,         &start,        &answers.range_size};
  answers.results.assign(7, cuPointerGetAttributes(7, attributes, data, address));
  answers.pointer_offset = address - pointer;
  answers.start_offset = address - start;
  return answers;
}

void compare(const Block& plain, const Block& managed, std::size_t offset) {
  CHECK(ask_one_by_one(managed.address() + offset) == ask_one_by_one(plain.address() + offset));
  CHECK(ask_together(managed.address() + offset) == ask_together(plain.address() + offset));
}

}  // namespace

TEST_CASE("answers about a block equal those about plain memory", "[answers]") {
  use_device(1);
  for (const std::size_t size : {3000UL, 3 * mib + 7}) {
    const Block plain(nullptr, size);
    const Block neighbour("weights", size);
    const Block managed("weights", size);
    for (const std::size_t offset : {std::size_t{0}, std::size_t{777}, size - 1}) {
      compare(plain, managed, offset);
      pause("weights");
      compare(plain, managed, offset);
      resume("weights");
      compare(plain, managed, offset);
    }
  }
}

TEST_CASE("a freed block's address has no answers", "[answers]") {
  use_device();
  CUdeviceptr gone = 0;
  {
    const Block managed("weights", 3 * mib);
    gone = managed.address();
  }
  CUdeviceptr base = 0;
  std::size_t size = 0;
  CHECK(cuMemGetAddressRange(&base, &size, gone) != CUDA_SUCCESS);
  unsigned type = 0;
  CHECK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, gone) != CUDA_SUCCESS);
}

TEST_CASE("a retained handle marks the block shared", "[answers]") {
  use_device();
  const Block kept("lora", 2 * mib);
  {
    Block shared("weights", 2 * mib);
    const Block other("weights", 2 * mib);
    CUmemGenericAllocationHandle handle = 0;
    must(cuMemRetainAllocationHandle(&handle, reinterpret_cast<void*>(shared.address() + 4096)));
    CHECK(lowtide_pause("weights", nullptr) == LOWTIDE_ERROR_REFUSED);
    CHECK(std::string(lowtide_last_error()).find("cuMemRetainAllocationHandle") != std::string::npos);
    CHECK(lowtide_pause(nullptr, nullptr) == LOWTIDE_ERROR_REFUSED);
    CHECK(info("weights").bytes_parked == 0);
    CHECK(info("lora").bytes_parked == 0);
    CHECK(shared.intact());
    CHECK(other.intact());
    CHECK(pause("lora").blocks == 1);
    resume("lora");
    must(cuMemRelease(handle));
    must(shared.free());
    CHECK(pause("weights").blocks == 1);  // the rest of the tag is nobody else's
    resume("weights");
    CHECK(other.intact());
  }
  CHECK(kept.intact());
}

TEST_CASE("cuIpcGetMemHandle is refused with one line", "[answers]") {
  const auto ending = run_victim("ipc");
  CHECK(ending.status == 0);
  CHECK(ending.output == "refused 3 of 3\n");
  CHECK(count_of(ending.errors, "\n") == 1);
  CHECK(count_of(ending.errors, "cuIpcGetMemHandle") == 1);
}

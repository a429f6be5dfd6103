// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/copies/kernels.hpp"

#include <algorithm>
#include <vector>

#include "tests/gpu/hazards/driver.hpp"

namespace copies {
namespace {

using hazards::driver;
using hazards::must;

constexpr unsigned kThreads = 256;
constexpr std::size_t kMostBlocks = 4096;

// Kept by hand, for old drivers too. All kernels go over the range by words of 8 bytes, in steps of the whole grid.
constexpr const char* kPtx = R"(
.version 6.4
.target sm_70
.address_size 64

.visible .entry sim_fill_random(.param .u64 address, .param .u64 bytes, .param .u64 seed)
{
  .reg .pred %done;
  .reg .b32 %r<5>;
  .reg .b64 %rd<10>;
  ld.param.u64 %rd1, [address];
  cvta.to.global.u64 %rd1, %rd1;
  ld.param.u64 %rd2, [bytes];
  shr.u64 %rd2, %rd2, 3;
  ld.param.u64 %rd3, [seed];
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %ntid.x;
  mov.u32 %r3, %tid.x;
  mov.u32 %r4, %nctaid.x;
  mul.wide.u32 %rd4, %r1, %r2;
  cvt.u64.u32 %rd5, %r3;
  add.u64 %rd4, %rd4, %rd5;
  mul.wide.u32 %rd5, %r4, %r2;
NEXT:
  setp.ge.u64 %done, %rd4, %rd2;
  @%done bra END;
  add.u64 %rd6, %rd3, %rd4;
  add.u64 %rd6, %rd6, 0x9e3779b97f4a7c15;
  shr.u64 %rd7, %rd6, 30;
  xor.b64 %rd6, %rd6, %rd7;
  mul.lo.u64 %rd6, %rd6, 0xbf58476d1ce4e5b9;
  shr.u64 %rd7, %rd6, 27;
  xor.b64 %rd6, %rd6, %rd7;
  mul.lo.u64 %rd6, %rd6, 0x94d049bb133111eb;
  shr.u64 %rd7, %rd6, 31;
  xor.b64 %rd6, %rd6, %rd7;
  shl.b64 %rd8, %rd4, 3;
  add.u64 %rd8, %rd1, %rd8;
  st.global.u64 [%rd8], %rd6;
  add.u64 %rd4, %rd4, %rd5;
  bra NEXT;
END:
  ret;
}

.visible .entry sum_words(.param .u64 address, .param .u64 bytes, .param .u64 sum)
{
  .reg .pred %done;
  .reg .b32 %r<5>;
  .reg .b64 %rd<12>;
  ld.param.u64 %rd1, [address];
  cvta.to.global.u64 %rd1, %rd1;
  ld.param.u64 %rd2, [bytes];
  shr.u64 %rd2, %rd2, 3;
  ld.param.u64 %rd3, [sum];
  cvta.to.global.u64 %rd3, %rd3;
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %ntid.x;
  mov.u32 %r3, %tid.x;
  mov.u32 %r4, %nctaid.x;
  mul.wide.u32 %rd4, %r1, %r2;
  cvt.u64.u32 %rd5, %r3;
  add.u64 %rd4, %rd4, %rd5;
  mul.wide.u32 %rd5, %r4, %r2;
  mov.u64 %rd9, 0;
NEXT:
  setp.ge.u64 %done, %rd4, %rd2;
  @%done bra END;
  shl.b64 %rd8, %rd4, 3;
  add.u64 %rd8, %rd1, %rd8;
  ld.global.u64 %rd6, [%rd8];
  mul.lo.u64 %rd7, %rd4, 0x9e3779b97f4a7c15;
  xor.b64 %rd6, %rd6, %rd7;
  mul.lo.u64 %rd6, %rd6, 0xbf58476d1ce4e5b9;
  shr.u64 %rd7, %rd6, 32;
  xor.b64 %rd6, %rd6, %rd7;
  mul.lo.u64 %rd6, %rd6, 0x94d049bb133111eb;
  add.u64 %rd9, %rd9, %rd6;
  add.u64 %rd4, %rd4, %rd5;
  bra NEXT;
END:
  red.global.add.u64 [%rd3], %rd9;
  ret;
}
)";

std::uint64_t sum_on_host(const std::uint64_t* words, std::size_t count, std::size_t first = 0) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < count; ++i) {
    std::uint64_t x = words[i] ^ (first + i) * 0x9e3779b97f4a7c15;
    x *= 0xbf58476d1ce4e5b9;
    x ^= x >> 32U;
    sum += x * 0x94d049bb133111eb;
  }
  return sum;
}

std::uint64_t sum_of_copy(CUdeviceptr address, std::size_t bytes) {
  static std::vector<std::uint64_t> piece(std::size_t{1} << 20U);
  std::uint64_t sum = 0;
  for (std::size_t at = 0; at < bytes; at += piece.size() * 8) {
    const auto size = std::min(piece.size() * 8, bytes - at);
    must(driver().to_host(piece.data(), address + at, size), "cuMemcpyDtoH");
    sum += sum_on_host(piece.data(), size / 8, at / 8);
  }
  return sum;
}

}  // namespace

std::uint64_t splitmix64(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ x >> 30U) * 0xbf58476d1ce4e5b9;
  x = (x ^ x >> 27U) * 0x94d049bb133111eb;
  return x ^ x >> 31U;
}

Kernels::Kernels() {
  CUmodule module = nullptr;
  must(driver().load_module(&module, driver().simulated ? "LOWTIDE-SIM-KERNELS" : kPtx), "cuModuleLoadData");
  must(driver().get_function(&fill_, module, "sim_fill_random"), "cuModuleGetFunction");
  if (!driver().simulated) must(driver().get_function(&sum_, module, "sum_words"), "cuModuleGetFunction");
  must(driver().allocate(&sums_, slots * 8), "cuMemAlloc");
  try_out();
}

void Kernels::launch(CUfunction kernel, std::size_t words, void** arguments) const {
  const auto blocks = static_cast<unsigned>(std::clamp<std::size_t>(words / kThreads, 1, kMostBlocks));
  must(driver().launch(kernel, blocks, 1, 1, kThreads, 1, 1, 0, nullptr, arguments, nullptr), "cuLaunchKernel");
}

void Kernels::fill(CUdeviceptr address, std::size_t bytes, std::uint64_t seed) const {
  std::uint64_t size = bytes;
  void* arguments[] = {&address, &size, &seed};
  launch(fill_, bytes / 8, arguments);
}

void Kernels::sum(CUdeviceptr address, std::size_t bytes, std::size_t slot) {
  hazards::require(slot < slots, "more blocks than there are slots for sums");
  CUdeviceptr to = sums_ + slot * 8;
  if (driver().simulated) {
    must(driver().synchronize(), "cuCtxSynchronize");
    const auto sum = sum_of_copy(address, bytes);
    must(driver().to_device(to, &sum, sizeof sum), "cuMemcpyHtoD");
    return;
  }
  std::uint64_t size = bytes;
  must(driver().set_bytes(to, 0, 8), "cuMemsetD8");
  void* arguments[] = {&address, &size, &to};
  launch(sum_, bytes / 8, arguments);
}

void Kernels::read(std::uint64_t* sums, std::size_t count) const {
  must(driver().synchronize(), "cuCtxSynchronize");
  must(driver().to_host(sums, sums_, count * 8), "cuMemcpyDtoH");
}

void Kernels::try_out() {
  constexpr std::size_t words = 100'003;
  constexpr std::uint64_t seed = 12345;
  std::vector<std::uint64_t> expected(words);
  for (std::size_t i = 0; i < words; ++i) expected[i] = splitmix64(seed + i);
  CUdeviceptr memory = 0;
  must(driver().allocate(&memory, words * 8), "cuMemAlloc");
  fill(memory, words * 8, seed);
  sum(memory, words * 8, 0);
  std::vector<std::uint64_t> seen(words);
  must(driver().synchronize(), "cuCtxSynchronize");
  must(driver().to_host(seen.data(), memory, words * 8), "cuMemcpyDtoH");
  hazards::require(seen == expected, "the device fills memory with other bytes than the host says");
  // Two words change places, which the sum has to see.
  std::swap(seen[7], seen[99'999]);
  must(driver().to_device(memory, seen.data(), words * 8), "cuMemcpyHtoD");
  sum(memory, words * 8, 1);
  std::uint64_t sums[2] = {};
  read(sums, 2);
  hazards::require(sums[0] == sum_on_host(expected.data(), words) && sums[1] == sum_on_host(seen.data(), words) &&
                       sums[0] != sums[1],
                   "the device sums up memory in another way than the host");
  must(driver().free(memory), "cuMemFree");
}

}  // namespace copies

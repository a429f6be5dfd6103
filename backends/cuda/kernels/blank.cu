// SPDX-License-Identifier: Apache-2.0
// Blank memory on the device; allocator/base/blank.hpp says what it holds and what counts as blank. blank.ptx beside
// this file is what is shipped: `make_ptx` makes it anew.
//
// One block of 256 threads per page. A page begins at a multiple of 8, and nearly always of 16: it is then read and
// written by two words at neighbouring addresses.

typedef unsigned int Word;
typedef unsigned long long Wide;

constexpr int kThreads = 256;
constexpr int kBatch = 4;  ///< loads that a thread has in flight
constexpr Wide kUnit = 8;

struct Page {
  Wide address;
  Wide bytes;
};

__device__ __forceinline__ Wide pattern(Wide address) {
  Wide word = (address ^ 0x6c6f77746964652dull) * 0x9e3779b97f4a7c15ull;
  word ^= word >> 32;
  word *= 0xd6e8feb86659fd93ull;
  return word ^ (word >> 32);
}

__device__ __forceinline__ Wide pairs_of(Page page) { return page.address % 16 == 0 ? page.bytes / 16 : 0; }

extern "C" __global__ void __launch_bounds__(kThreads) lowtide_fill_blank(const Page* pages) {
  const Page page = pages[blockIdx.x];
  const Wide pairs = pairs_of(page);
  ulonglong2* const to = reinterpret_cast<ulonglong2*>(page.address);
#pragma unroll 4
  for (Wide i = threadIdx.x; i < pairs; i += kThreads) {
    const Wide address = page.address + 16 * i;
    to[i] = make_ulonglong2(pattern(address), pattern(address + kUnit));
  }
  for (Wide offset = 16 * pairs + kUnit * threadIdx.x; offset + kUnit <= page.bytes; offset += kUnit * kThreads) {
    *reinterpret_cast<Wide*>(page.address + offset) = pattern(page.address + offset);
  }
  const Wide rest = page.bytes % kUnit;
  if (threadIdx.x >= rest) return;
  const Wide whole = page.bytes - rest;
  const Wide word = pattern(page.address + whole);
  reinterpret_cast<unsigned char*>(page.address)[whole + threadIdx.x] =
      static_cast<unsigned char>(word >> (8 * threadIdx.x));
}

__device__ __forceinline__ bool is_blank(Wide address) {
  return *reinterpret_cast<const Wide*>(address) == pattern(address);
}

/// The blank bytes of what follows the last whole word.
__device__ __forceinline__ Word blank_rest(Page page) {
  const Word rest = static_cast<Word>(page.bytes % kUnit);
  const Wide end = page.address + page.bytes - rest;
  if (rest == 0 || (page.bytes >= kUnit && !is_blank(end - kUnit))) return 0;
  const Wide word = pattern(end);
#pragma unroll 1
  for (Word i = 0; i < rest; ++i) {
    if (reinterpret_cast<const unsigned char*>(end)[i] != static_cast<unsigned char>(word >> (8 * i))) return 0;
  }
  return rest;
}

__device__ __forceinline__ Word blank_pair(ulonglong2 pair, Wide address) {
  return (pair.x == pattern(address) ? 8 : 0) + (pair.y == pattern(address + kUnit) ? 8 : 0);
}

extern "C" __global__ void __launch_bounds__(kThreads) lowtide_count_blank(const Page* pages, Wide* counts) {
  __shared__ Word of_warps[kThreads / 32];
  const Page page = pages[blockIdx.x];
  const Wide pairs = pairs_of(page);
  const ulonglong2* const from = reinterpret_cast<const ulonglong2*>(page.address);
  Word count = threadIdx.x == 0 ? blank_rest(page) : 0;
  Wide i = threadIdx.x;
#pragma unroll 1
  for (; i + (kBatch - 1) * kThreads < pairs; i += kBatch * kThreads) {
    ulonglong2 loaded[kBatch];
#pragma unroll
    for (int j = 0; j < kBatch; ++j) loaded[j] = __ldcs(from + i + j * kThreads);
#pragma unroll
    for (int j = 0; j < kBatch; ++j) count += blank_pair(loaded[j], page.address + 16 * (i + j * kThreads));
  }
#pragma unroll 1
  for (; i < pairs; i += kThreads) count += blank_pair(from[i], page.address + 16 * i);
#pragma unroll 1
  for (Wide offset = 16 * pairs + kUnit * threadIdx.x; offset + kUnit <= page.bytes; offset += kUnit * kThreads) {
    if (is_blank(page.address + offset)) count += kUnit;
  }
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) count += __shfl_down_sync(0xffffffff, count, distance);
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = count;
  __syncthreads();
  if (threadIdx.x > 0) return;
  Wide sum = 0;
  for (int warp = 0; warp < kThreads / 32; ++warp) sum += of_warps[warp];
  counts[blockIdx.x] = sum;
}

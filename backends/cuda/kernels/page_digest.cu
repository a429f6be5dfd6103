// SPDX-License-Identifier: Apache-2.0
// The digests of allocator/base/page_digest.hpp on the device; that file says what is computed. page_digest.ptx beside
// this file is what is shipped: `make_ptx` makes it anew.
//
// One block of 256 threads per page, a thread per lane; a page is read once, by 16 bytes at neighbouring addresses.
// Every thread of a block needs the same key words at the same time, so that these come from shared memory by
// broadcast.

typedef unsigned int Word;
typedef unsigned long long Wide;

constexpr int kLanes = 256;
constexpr int kRows = 4;
constexpr int kKeyWords = 2048 + 2 * (kRows - 1);
constexpr int kSteps = 512;
constexpr int kBatch = 4;  ///< loads that a thread has in flight
constexpr Wide kVector = 16;
constexpr Wide kStep = kLanes * kVector;

struct Page {
  Wide address;
  Wide bytes;
};
struct Digest {
  Wide words[kRows];
};
struct alignas(16) Key {
  Word first[kKeyWords];
  Word second[kKeyWords];
  Wide zero_tails[kSteps + 1][kRows];
};

/// Filled in once when the module is loaded; the kernel gets its address.
extern "C" {
__device__ Key lowtide_digest_key;
}

__device__ __forceinline__ void add_product(Wide& sum, Word low, Word high, Word key_low, Word key_high) {
  sum += static_cast<Wide>(low + key_low) * (high + key_high);
}

/// `key` is the window of key words that begins at the vector's step.
__device__ __forceinline__ void add_vector(Wide (&sums)[kRows], uint4 vector, const Word (&key)[12]) {
#pragma unroll
  for (int row = 0; row < kRows; ++row) {
    add_product(sums[row], vector.x, vector.y, key[2 * row], key[2 * row + 1]);
    add_product(sums[row], vector.z, vector.w, key[2 * row + 2], key[2 * row + 3]);
  }
}

__device__ __forceinline__ void load_key(Word* to, const Word* from) {
  const uint4 four = *reinterpret_cast<const uint4*>(from);
  to[0] = four.x, to[1] = four.y, to[2] = four.z, to[3] = four.w;
}

__device__ __forceinline__ void slide(Word (&key)[12], const Word* next) {
#pragma unroll
  for (int i = 0; i < 8; ++i) key[i] = key[i + 4];
  load_key(key + 8, next);
}

/// For an address that is no multiple of 16 and for a page's end: byte by byte, zeros behind the end.
__device__ __forceinline__ uint4 load_carefully(Page page, Wide offset) {
  Word words[4] = {0, 0, 0, 0};
  const unsigned char* const bytes = reinterpret_cast<const unsigned char*>(page.address);
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    if (offset + i < page.bytes) words[i / 4] |= static_cast<Word>(bytes[offset + i]) << (8 * (i % 4));
  }
  return make_uint4(words[0], words[1], words[2], words[3]);
}

__device__ __forceinline__ int add_page(Wide (&sums)[kRows], Page page, const Word* first) {
  const int steps = static_cast<int>((page.bytes + kStep - 1) / kStep);
  const int whole = page.address % kVector == 0 ? static_cast<int>(page.bytes / kStep) : 0;
  const uint4* vector = reinterpret_cast<const uint4*>(page.address) + threadIdx.x;
  Word key[12];
  load_key(key, first), load_key(key + 4, first + 4), load_key(key + 8, first + 8);
  int step = 0;
#pragma unroll 1
  for (; step + kBatch <= whole; step += kBatch) {
    uint4 vectors[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) vectors[i] = __ldcs(vector + i * kLanes);
    vector += kBatch * kLanes;
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      add_vector(sums, vectors[i], key);
      slide(key, first + 4 * (step + i + 3));
    }
  }
#pragma unroll 1
  for (; step < steps; ++step) {
    add_vector(sums, load_carefully(page, step * kStep + threadIdx.x * kVector), key);
    slide(key, first + 4 * (step + 3));
  }
  return steps;
}

/// Level 2: what this thread's four results add to each row of the page's digest.
__device__ __forceinline__ void second_level(Wide (&sums)[kRows], const Word* second) {
  Word key[2 * kRows + 2 * (kRows - 1)];
#pragma unroll
  for (int i = 0; i < 2 * kRows + 2 * (kRows - 1); ++i) key[i] = second[2 * kRows * threadIdx.x + i];
  Wide out[kRows] = {0, 0, 0, 0};
#pragma unroll
  for (int row = 0; row < kRows; ++row) {
#pragma unroll
    for (int from = 0; from < kRows; ++from) {
      add_product(out[row], static_cast<Word>(sums[from]), static_cast<Word>(sums[from] >> 32), key[2 * (from + row)],
                  key[2 * (from + row) + 1]);
    }
  }
#pragma unroll
  for (int row = 0; row < kRows; ++row) sums[row] = out[row];
}

extern "C" __global__ void __launch_bounds__(kLanes, 4)
    lowtide_digest_pages(const Page* pages, Digest* digests, const Key* key) {
  // The window slides beyond the last key word by what is never multiplied.
  __shared__ alignas(16) Word first[4 * (kSteps + 3)];
  __shared__ Wide of_warps[kLanes / 32][kRows];
#pragma unroll 1
  for (int i = threadIdx.x; i < 4 * (kSteps + 3); i += kLanes) first[i] = i < kKeyWords ? key->first[i] : 0;
  const Page page = pages[blockIdx.x];
  __syncthreads();

  Wide sums[kRows] = {0, 0, 0, 0};
  const int steps = add_page(sums, page, first);
#pragma unroll
  for (int row = 0; row < kRows; ++row) sums[row] += key->zero_tails[steps][row];
  second_level(sums, key->second);

#pragma unroll
  for (int row = 0; row < kRows; ++row) {
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) {
      sums[row] += __shfl_down_sync(0xffffffff, sums[row], distance);
    }
    if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32][row] = sums[row];
  }
  __syncthreads();
  if (threadIdx.x >= kRows) return;
  Wide sum = threadIdx.x == 0 ? page.bytes : 0;
  for (int warp = 0; warp < kLanes / 32; ++warp) sum += of_warps[warp][threadIdx.x];
  digests[blockIdx.x].words[threadIdx.x] = sum;
}

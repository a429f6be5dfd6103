// SPDX-License-Identifier: Apache-2.0
#include "allocator/base/page_digest.hpp"

#include <sys/random.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace lowtide {
namespace {

static_assert(std::endian::native == std::endian::little, "words are read as the devices read them");
static_assert(sizeof(DigestKey::Tables) == 2 * 8216 + 513 * 32, "the layout that the kernels know");

constexpr std::size_t vector_bytes = 16;
constexpr std::size_t step_bytes = DigestKey::lanes * vector_bytes;
/// So many steps are taken at a time, which keeps the sums in registers over them.
constexpr std::size_t batch = 8;

using Row = std::array<std::uint64_t, DigestKey::rows>;
/// For each row and lane two sums, one for either pair of a vector's four words.
using Sums = std::array<std::array<std::uint64_t, 2 * DigestKey::lanes>, DigestKey::rows>;

constexpr std::uint64_t low(std::uint64_t word) { return word & 0xffffffff; }
constexpr std::uint64_t high(std::uint64_t word) { return word >> 32; }
constexpr std::uint64_t product(std::uint64_t message, std::uint32_t key_low, std::uint32_t key_high) {
  return low(low(message) + key_low) * low(high(message) + key_high);
}

// One vector of the message: its two products with one row's key. The compiler does not find SSE2's instruction for the
// product of two 32-bit numbers by itself, and is three times slower without it.
#ifdef __SSE2__
struct Pair {
  __m128i of;
};
Pair load(const void* from) { return {_mm_loadu_si128(static_cast<const __m128i*>(from))}; }
void store(void* to, Pair pair) { _mm_storeu_si128(static_cast<__m128i*>(to), pair.of); }
Pair accumulate(Pair sum, Pair message, Pair key) {
  const __m128i added = _mm_add_epi32(message.of, key.of);
  return {_mm_add_epi64(sum.of, _mm_mul_epu32(added, _mm_srli_epi64(added, 32)))};
}
#else
struct Pair {
  std::uint64_t of[2];
};
Pair load(const void* from) {
  Pair pair;
  std::memcpy(&pair, from, sizeof pair);
  return pair;
}
void store(void* to, Pair pair) { std::memcpy(to, &pair, sizeof pair); }
Pair accumulate(Pair sum, Pair message, Pair key) {
  for (int i = 0; i < 2; ++i) {
    sum.of[i] +=
        product(message.of[i], static_cast<std::uint32_t>(key.of[i]), static_cast<std::uint32_t>(key.of[i] >> 32));
  }
  return sum;
}
#endif

/// Adds the steps `first` to `first + Count` of all lanes, whose bytes lie at `message`.
template <std::size_t Count>
void add_steps(Sums& sums, const unsigned char* message, const std::uint32_t* key) {
  for (std::size_t lane = 0; lane < DigestKey::lanes; ++lane) {
    std::array<Pair, DigestKey::rows> mine;
#pragma GCC unroll 4
    for (std::size_t row = 0; row < DigestKey::rows; ++row) mine[row] = load(&sums[row][2 * lane]);
#pragma GCC unroll 8
    for (std::size_t step = 0; step < Count; ++step) {
      const Pair vector = load(message + step * step_bytes + lane * vector_bytes);
#pragma GCC unroll 4
      for (std::size_t row = 0; row < DigestKey::rows; ++row) {
        mine[row] = accumulate(mine[row], vector, load(key + 4 * step + 2 * row));
      }
    }
#pragma GCC unroll 4
    for (std::size_t row = 0; row < DigestKey::rows; ++row) store(&sums[row][2 * lane], mine[row]);
  }
}

/// Level 1 over the steps that the page has bytes for; returns how many these are.
std::size_t add_page(Sums& sums, const unsigned char* page, std::size_t bytes, const std::uint32_t* key) {
  const std::size_t whole = bytes / step_bytes;
  std::size_t step = 0;
  for (; step + batch <= whole; step += batch) add_steps<batch>(sums, page + step * step_bytes, key + 4 * step);
  for (; step < whole; ++step) add_steps<1>(sums, page + step * step_bytes, key + 4 * step);
  const std::size_t rest = bytes - whole * step_bytes;
  if (rest == 0) return whole;
  std::array<unsigned char, step_bytes> padded{};
  std::memcpy(padded.data(), page + whole * step_bytes, rest);
  add_steps<1>(sums, padded.data(), key + 4 * whole);
  return whole + 1;
}

std::uint64_t splitmix64(std::uint64_t& state) {
  std::uint64_t x = state += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

bool fill_randomly(void* to, std::size_t bytes) noexcept {
  for (std::size_t done = 0; done < bytes;) {
    const ssize_t got = ::getrandom(static_cast<unsigned char*>(to) + done, bytes - done, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    done += static_cast<std::size_t>(got);
  }
  return true;
}

}  // namespace

Result<DigestKey> DigestKey::draw() noexcept {
  DigestKey key;
  auto& tables = key.tables_;
  if (!fill_randomly(&tables.first, sizeof tables.first) || !fill_randomly(&tables.second, sizeof tables.second)) {
    return fail(Error(Code::unsupported, errno, "getrandom", "the system gives no random numbers (getrandom failed)"));
  }
  key.compute_tails();
  return key;
}

DigestKey::DigestKey(std::uint64_t seed) noexcept {
  for (auto* key : {&tables_.first, &tables_.second}) {
    for (auto& word : *key) word = static_cast<std::uint32_t>(splitmix64(seed) >> 32);
  }
  compute_tails();
}

void DigestKey::compute_tails() noexcept {
  const auto& key = tables_.first;
  for (std::size_t step = steps; step-- > 0;) {
    for (std::size_t row = 0; row < rows; ++row) {
      const std::size_t at = 4 * step + 2 * row;
      tables_.zero_tails[step][row] =
          tables_.zero_tails[step + 1][row] + product(0, key[at], key[at + 1]) + product(0, key[at + 2], key[at + 3]);
    }
  }
}

PageDigest digest_of(const void* page, std::size_t bytes, const DigestKey::Tables& key) noexcept {
  Sums sums{};
  const std::size_t steps = add_page(sums, static_cast<const unsigned char*>(page), bytes, key.first.data());
  PageDigest digest;
  for (std::size_t lane = 0; lane < DigestKey::lanes; ++lane) {
    for (std::size_t from = 0; from < DigestKey::rows; ++from) {
      const auto word = sums[from][2 * lane] + sums[from][2 * lane + 1] + key.zero_tails[steps][from];
      const std::uint32_t* const at = &key.second[2 * (DigestKey::rows * lane + from)];
      for (std::size_t row = 0; row < DigestKey::rows; ++row) {
        digest.words[row] += product(word, at[2 * row], at[2 * row + 1]);
      }
    }
  }
  digest.words[0] += bytes;
  return digest;
}

}  // namespace lowtide

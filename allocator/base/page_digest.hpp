// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "allocator/base/bytes.hpp"
#include "allocator/base/result.hpp"

namespace lowtide {

/// A fingerprint of up to `digest_page` bytes: two pages whose digests by one key are equal hold the same bytes.
///
/// HOW. NH with Toeplitz keys (Black, Halevi, Krawczyk, Krovetz, Rogaway: "UMAC: Fast and secure message
/// authentication", CRYPTO 1999), words of 32 bits, 4 rows. For a message m of n words and a key k,
///   row r = sum over pairs i of (m[2i] + k[2i+2r] mod 2^32) * (m[2i+1] + k[2i+1+2r] mod 2^32), mod 2^64, r = 0..3.
/// Level 1: the page is 131072 vectors of 16 bytes, behind its end zeros; lane t of 256 takes the vectors t, t+256,
/// ...: 2048 words, with the first key. Level 2: the 256 * 4 results, by lane, then by row, the low word first, are
/// 2048 words again, with the second key. The page's size is added to the first of the 4 results.
///
/// THE BOUND. The theorem asks for an even number of words (2048), the same number in both messages (always: zeros
/// behind the end), and a uniformly random key of n + 2(rows - 1) words (2054); then two different messages collide
/// with a probability of at most 2^-(32*4) = 2^-128. Two different pages differ in a lane, and all lanes collide at
/// most as often as this one does: 2^-128. If one does not, level 2, whose key is independent, collides with at most
/// 2^-128. So two pages that were fixed before the key was drawn have equal digests with a probability of at most
/// 2^-127. Where the sizes differ the results must differ by a given number instead of 0; the theorem's proof bounds
/// that alike (a product (k + a) * x for x != x' takes any given difference for at most one k), and pages that differ
/// in nothing but their size always have different digests. Over n comparisons: at most n * 2^-127; a million pages
/// compared a million times: 2^-87. Position matters since each place has key words of its own. Out of scope is who
/// sees digests or the key and then chooses the bytes.
struct PageDigest {
  std::array<std::uint64_t, 4> words{};
  bool operator==(const PageDigest&) const = default;
};

/// The most bytes that one digest covers.
constexpr Bytes digest_page = 2_MiB;

/// The two random keys, with what follows from them.
class DigestKey {
 public:
  static constexpr std::size_t lanes = 256;
  static constexpr std::size_t steps = 512;  ///< vectors that a lane takes
  static constexpr std::size_t rows = 4;
  static constexpr std::size_t words = 2048 + 2 * (rows - 1);

  /// Plain memory, in the layout that the device kernels know.
  struct alignas(16) Tables {
    std::array<std::uint32_t, words> first;
    std::array<std::uint32_t, words> second;
    /// [s][r]: what the zero vectors of a lane from step s on add to its row r, so that a short page costs its own
    /// size.
    std::array<std::array<std::uint64_t, rows>, steps + 1> zero_tails;
  };

  /// From the system's random source, which the bound needs. Code::unsupported if it refuses.
  static Result<DigestKey> draw() noexcept;
  /// The same key for the same seed.
  explicit DigestKey(std::uint64_t seed) noexcept;

  const Tables& tables() const noexcept { return tables_; }

 private:
  DigestKey() noexcept = default;
  void compute_tails() noexcept;

  Tables tables_{};
};

/// The digest of `bytes` bytes (at most digest_page) at `page`, at any alignment: what every device's kernel must say.
PageDigest digest_of(const void* page, std::size_t bytes, const DigestKey::Tables& key) noexcept;
inline PageDigest digest_of(const void* page, std::size_t bytes, const DigestKey& key) noexcept {
  return digest_of(page, bytes, key.tables());
}

}  // namespace lowtide

// SPDX-License-Identifier: Apache-2.0
#include "allocator/base/page_digest.hpp"

#include <algorithm>
#include <cstring>
#include <random>
#include <set>
#include <vector>

#include "tests/catch.hpp"

using namespace lowtide;

namespace {

using Page = std::vector<unsigned char>;

const DigestKey& fixed_key() {
  static const DigestKey key(1);
  return key;
}

Page random_page(std::size_t bytes, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  Page page(bytes);
  for (auto& byte : page) byte = static_cast<unsigned char>(random());
  return page;
}

PageDigest digest_of(const Page& page) { return lowtide::digest_of(page.data(), page.size(), fixed_key()); }

/// The definition of page_digest.hpp, word by word.
PageDigest by_definition(Page page, const DigestKey& key) {
  const auto size = page.size();
  page.resize(digest_page.value);
  const auto rows_of = [](const std::vector<std::uint32_t>& words, const auto& keys) {
    std::array<std::uint64_t, 4> rows{};
    for (std::size_t r = 0; r < 4; ++r) {
      for (std::size_t i = 0; i < words.size(); i += 2) {
        const std::uint32_t even = words[i] + keys[i + 2 * r];
        const std::uint32_t odd = words[i + 1] + keys[i + 1 + 2 * r];
        rows[r] += std::uint64_t{even} * odd;
      }
    }
    return rows;
  };
  std::vector<std::uint32_t> second;
  for (std::size_t lane = 0; lane < 256; ++lane) {
    std::vector<std::uint32_t> words(2048);
    for (std::size_t j = 0; j < 512; ++j) std::memcpy(&words[4 * j], &page[(j * 256 + lane) * 16], 16);
    for (const auto row : rows_of(words, key.tables().first)) {
      second.push_back(static_cast<std::uint32_t>(row));
      second.push_back(static_cast<std::uint32_t>(row >> 32));
    }
  }
  PageDigest digest{rows_of(second, key.tables().second)};
  digest.words[0] += size;
  return digest;
}

}  // namespace

TEST_CASE("a digest is what its definition says, at any size") {
  for (const std::size_t size :
       {0u, 1u, 15u, 16u, 17u, 4095u, 4096u, 4097u, 40'961u, 1u << 20, (1u << 21) - 1, 1u << 21}) {
    INFO(size);
    const auto page = random_page(size, size);
    CHECK(digest_of(page) == by_definition(page, fixed_key()));
    const DigestKey other(2);
    CHECK(lowtide::digest_of(page.data(), page.size(), other) == by_definition(page, other));
  }
}

TEST_CASE("a digest stays what it was in earlier versions") {
  Page page(digest_page.value);
  for (std::size_t i = 0; i < page.size(); ++i) page[i] = static_cast<unsigned char>(i * 131 + (i >> 12));
  CHECK((digest_of(page).words ==
         std::array<std::uint64_t, 4>{0x8915e7a37f9d5187, 0xe81cddb4651ee46f, 0xdfa8e90cebec011e, 0xfe378ae76b731003}));
  page.resize(1000);
  CHECK((digest_of(page).words ==
         std::array<std::uint64_t, 4>{0xf390602e37d8a706, 0x8b6512ce92b2e9ca, 0x1367af5083baab9e, 0x2cbfaa94d5a5e51f}));
}

TEST_CASE("a digest does not depend on where the bytes lie") {
  const auto page = random_page(100'003, 4);
  const auto expected = digest_of(page);
  for (std::size_t offset = 1; offset < 17; ++offset) {
    Page moved(page.size() + offset);
    std::copy(page.begin(), page.end(), moved.begin() + static_cast<std::ptrdiff_t>(offset));
    CHECK(lowtide::digest_of(moved.data() + offset, page.size(), fixed_key()) == expected);
  }
}

TEST_CASE("a flipped bit changes the digest, wherever it is") {
  auto page = random_page(digest_page.value, 5);
  const auto before = digest_of(page);
  std::mt19937_64 random(6);
  std::vector<std::size_t> places{0, page.size() - 1, 15, 16, 4095, 4096};
  for (int i = 0; i < 300; ++i) places.push_back(random() % page.size());
  for (const auto place : places) {
    const auto bit = static_cast<unsigned char>(1U << random() % 8);
    page[place] ^= bit;
    REQUIRE(digest_of(page) != before);
    page[place] ^= bit;
  }
  CHECK(digest_of(page) == before);
}

TEST_CASE("swapped parts change the digest") {
  const auto page = random_page(digest_page.value, 7);
  const auto swapped = [&](std::size_t a, std::size_t b, std::size_t bytes) {
    auto copy = page;
    std::swap_ranges(copy.begin() + static_cast<std::ptrdiff_t>(a),
                     copy.begin() + static_cast<std::ptrdiff_t>(a + bytes),
                     copy.begin() + static_cast<std::ptrdiff_t>(b));
    return digest_of(copy);
  };
  std::vector<PageDigest> seen{digest_of(page),
                               swapped(0, 4, 4),        // words of a vector
                               swapped(0, 8, 8),        // its pairs, which the rows' keys overlap in
                               swapped(0, 4096, 16),    // vectors of a lane
                               swapped(0, 16, 16),      // vectors of two lanes
                               swapped(0, 4096, 4096),  // steps of all lanes
                               swapped(0, page.size() / 2, page.size() / 2)};
  // Two whole lanes.
  auto lanes = page;
  for (std::size_t step = 0; step < lanes.size(); step += 4096) {
    const auto at = lanes.begin() + static_cast<std::ptrdiff_t>(step);
    std::swap_ranges(at + 16, at + 32, at + 160);
  }
  seen.push_back(digest_of(lanes));
  for (std::size_t i = 0; i < seen.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      INFO(i << " and " << j);
      CHECK(seen[i] != seen[j]);
    }
  }
}

TEST_CASE("a page differs from the same page with zeros behind it") {
  std::set<std::array<std::uint64_t, 4>> seen;
  for (const std::size_t size : {0u, 1u, 2u, 16u, 4096u, 4097u, 1u << 20, 1u << 21}) {
    CHECK(seen.insert(digest_of(Page(size)).words).second);
  }
  auto page = random_page(5000, 8);
  const auto digest = digest_of(page);
  page.push_back(0);
  CHECK(digest_of(page) != digest);
}

TEST_CASE("pages that differ little collide as seldom in 32 bits as random numbers do") {
  // 450 pages make 101,025 pairs; 32 bits of random numbers collide in 1 of 42,000 such runs per word.
  constexpr std::size_t count = 450;
  std::vector<PageDigest> digests;
  for (std::size_t i = 0; i < count; ++i) {
    Page page(8192);
    page[i * 18] = static_cast<unsigned char>(1 + i % 3);
    digests.push_back(digest_of(page));
  }
  for (std::size_t row = 0; row < 4; ++row) {
    for (const int shift : {0, 32}) {
      std::set<std::uint32_t> seen;
      for (const auto& digest : digests) seen.insert(static_cast<std::uint32_t>(digest.words[row] >> shift));
      INFO("row " << row << ", bits from " << shift);
      CHECK(seen.size() >= count - 1);
    }
  }
}

TEST_CASE("keys: a drawn one differs from every other, a seed gives the same again") {
  const auto page = random_page(100, 9);
  const auto first = DigestKey::draw();
  const auto second = DigestKey::draw();
  REQUIRE((first && second));
  CHECK(first->tables().first != second->tables().first);
  CHECK(first->tables().second != second->tables().second);
  CHECK(std::memcmp(&first->tables().first, &first->tables().second, sizeof first->tables().first) != 0);
  CHECK(lowtide::digest_of(page.data(), page.size(), *first) != lowtide::digest_of(page.data(), page.size(), *second));
  CHECK(lowtide::digest_of(page.data(), page.size(), *first) == by_definition(page, *first));
  CHECK(DigestKey(3).tables().first == DigestKey(3).tables().first);
}

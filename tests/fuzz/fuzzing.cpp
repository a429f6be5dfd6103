// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/fuzzing.hpp"

#include <malloc.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <stdexcept>
#include <thread>

#include "tests/catch.hpp"
#include "tests/sanitized.hpp"

namespace fuzz {
namespace {

std::size_t below_or_end(Random& random, const std::string& text) { return random.below(text.size() + 1); }

std::string piece_of(Random& random, const std::string& text) {
  const auto start = below_or_end(random, text);
  return text.substr(start, random.below(1 + std::min<std::size_t>(text.size() - start, 64)));
}

std::string number(Random& random) {
  static const std::vector<std::string> edges{"0",     "-1",         "1e999", "4294967296", "18446744073709551616",
                                              "0x7f",  "2147483648", "0.5",   "1e-9",       "9223372036854775807",
                                              "00017", "+3"};
  return random.one_in(2) ? random.pick(edges) : std::to_string(random.next() >> random.below(64));
}

void mutate(Random& random, const Material& material, std::string& text) {
  const auto at = below_or_end(random, text);
  switch (random.below(9)) {
    case 0:
      if (at < text.size()) text[at] = static_cast<char>(text[at] ^ (1 << random.below(8)));
      break;
    case 1:
      if (at < text.size()) text[at] = static_cast<char>(random.next());
      break;
    case 2: text.insert(at, random.bytes(1 + random.below(4))); break;
    case 3: text.erase(at, 1 + random.below(8)); break;
    case 4: text.insert(at, random.pick(material.words)); break;
    case 5: text.insert(at, piece_of(random, text)); break;
    case 6: text.insert(at, piece_of(random, random.pick(material.samples))); break;
    case 7: text.insert(at, number(random)); break;
    default: {
      const auto piece = random.one_in(2) ? random.pick(material.words) : piece_of(random, text);
      std::string many;
      for (auto times = random.below(random.one_in(10) ? 2000 : 20); times > 0; --times) many += piece;
      text.insert(at, many);
    }
  }
}

/// Waits a little for what another thread is still closing or freeing.
bool has_grown(std::size_t (*count)(), std::size_t limit) {
  constexpr int looks = 200;
  for (int i = 0; i < looks && count() > limit; ++i) std::this_thread::sleep_for(std::chrono::milliseconds{10});
  return count() > limit;
}

std::size_t heap_bytes() { return lowtide::test::sanitized ? 0 : ::mallinfo2().uordblks; }

}  // namespace

void expect(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error(what);
}

std::string shown(std::string_view text) {
  constexpr std::size_t most = 4000;
  constexpr std::string_view hex = "0123456789abcdef";
  std::string line;
  for (const char c : text.substr(0, most)) {
    const auto code = static_cast<unsigned char>(c);
    if (code >= 0x20 && code < 0x7F && c != '\\')
      line += c;
    else
      line += std::string("\\x") + hex[code >> 4] + hex[code & 15];
  }
  return line + (text.size() > most ? "... of " + std::to_string(text.size()) : "");
}

std::string Random::bytes(std::size_t size) {
  std::string text(size, '\0');
  std::generate(text.begin(), text.end(), [this] { return static_cast<char>(next()); });
  return text;
}

std::string mutated(Random& random, const Material& material) {
  if (random.one_in(20)) return random.bytes(random.below(300));
  std::string text = random.pick(material.samples);
  while (random.one_in(4)) text += random.pick(material.samples);
  for (auto changes = random.below(random.one_in(3) ? 20 : 4); changes > 0; --changes) mutate(random, material, text);
  return text;
}

int cases(int usual) { return lowtide::test::sanitized ? usual / 4 : usual; }

std::size_t count_descriptors() {
  namespace fs = std::filesystem;
  return static_cast<std::size_t>(std::distance(fs::directory_iterator("/proc/self/fd"), fs::directory_iterator()));
}

void for_each_seed(const std::function<void(Random& random)>& play) {
  constexpr std::size_t heap_noise = std::size_t{256} << 10;
  const char* const chosen = std::getenv("LOWTIDE_TEST_SEED");
  const std::uint64_t first = chosen != nullptr ? std::strtoull(chosen, nullptr, 10) : 1;
  const std::uint64_t last = chosen != nullptr ? first : std::getenv("LOWTIDE_TEST_LONG") != nullptr ? 100 : 10;
  std::size_t descriptors = 0;
  std::size_t heap = 0;
  for (auto seed = first; seed <= last; ++seed) {
    std::cout << "LOWTIDE_TEST_SEED=" << seed << std::endl;
    Random random(seed);
    try {
      play(random);
    } catch (const std::exception& error) {
      FAIL("LOWTIDE_TEST_SEED=" << seed << ": " << error.what());
    }
    if (seed > first) continue;
    descriptors = count_descriptors();
    heap = heap_bytes();
  }
  CHECK_FALSE(has_grown(count_descriptors, descriptors));
  CHECK_FALSE(has_grown(heap_bytes, heap + heap_noise));
}

}  // namespace fuzz

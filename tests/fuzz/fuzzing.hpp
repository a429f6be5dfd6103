// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace fuzz {

/// Throws std::runtime_error unless it holds.
void expect(bool holds, const std::string& what);
/// Text for a message: what is not printable ASCII as \xNN, and cut.
std::string shown(std::string_view text);

class Random {
 public:
  explicit Random(std::uint64_t seed) : generator_(seed) {}
  std::uint64_t next() { return generator_(); }
  /// 0 to limit - 1; `limit` is not 0.
  std::uint64_t below(std::uint64_t limit) { return generator_() % limit; }
  bool one_in(std::uint64_t count) { return below(count) == 0; }
  template <class Container>
  const auto& pick(const Container& container) {
    return container[below(container.size())];
  }
  std::string bytes(std::size_t size);

 private:
  std::mt19937_64 generator_;
};

/// Good input, and words that mean something in it.
struct Material {
  std::vector<std::string> samples;
  std::vector<std::string> words;
};

/// A sample, a few of them put together, or noise, after none to some mutations: bits, bytes, words and pieces changed,
/// put in, taken out, repeated.
std::string mutated(Random& random, const Material& material);

/// Plays the seeds 1 to 10, LOWTIDE_TEST_LONG=1: to 100, LOWTIDE_TEST_SEED=N: that one alone. Each is announced on
/// stdout, so that a crash has its seed before it; what `play` throws fails the test. Then neither descriptors nor,
/// where no sanitizer counts them, heap bytes may have grown since the first seed.
void for_each_seed(const std::function<void(Random& random)>& play);

/// `usual`, or a fourth of it under a sanitizer.
int cases(int usual);

std::size_t count_descriptors();

}  // namespace fuzz

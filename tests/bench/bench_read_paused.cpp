// SPDX-License-Identifier: Apache-2.0
// bench_read_paused [MIB]: how fast the backup of a parked block (1024 MiB unless said, a multiple of 64) is read and
// written through the C API, beside memcpy of the same bytes by the same thread. In pieces; every byte is compared.
// Prints a JSON line per figure:
//   {"what": NAME, "piece": BYTES OF A CALL, "gib_per_s": MEDIAN, "best": BEST, "repetitions": N, "bytes": ALL BYTES}
// With LD_LIBRARY_PATH naming the folder of the simulated driver it needs no GPU: no device takes part in what is
// timed.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <stdexcept>
#include <vector>

#include "allocator/include/lowtide/lowtide.h"

namespace {

constexpr int repetitions = 7;
constexpr std::size_t mib = std::size_t{1} << 20;

void must(lowtide_result result) {
  if (result != LOWTIDE_OK) throw std::runtime_error(lowtide_last_error());
}

/// A parked block of device memory.
class Parked {
 public:
  explicit Parked(std::size_t its_size) : size(its_size) {
    must(lowtide_scope_begin("weights"));
    address = static_cast<char*>(lowtide_malloc(static_cast<ssize_t>(size), 0, nullptr));
    must(lowtide_scope_end());
    if (address == nullptr) throw std::runtime_error(lowtide_last_error());
    must(lowtide_pause("weights", nullptr));
  }
  Parked(const Parked&) = delete;
  Parked& operator=(const Parked&) = delete;
  ~Parked() { lowtide_free(address, static_cast<ssize_t>(size), 0, nullptr); }

  /// Calls `work(offset, bytes)` for pieces of at most `most` bytes.
  void in_pieces(std::size_t most, const std::function<void(std::size_t, std::size_t)>& work) const {
    for (std::size_t at = 0; at < size; at += most) work(at, std::min(most, size - at));
  }

  const std::size_t size;
  char* address = nullptr;
};

/// The backup's bytes where they lie: memcpy reads and writes the very same memory.
std::vector<char*> views_of(const Parked& block, std::size_t piece) {
  std::vector<char*> views;
  block.in_pieces(piece, [&](std::size_t at, std::size_t bytes) {
    const void* host = nullptr;
    std::size_t there = 0;
    must(lowtide_view_paused(block.address + at, &host, &there));
    if (there < bytes) throw std::runtime_error("a piece of the backup lies in two places");
    views.push_back(static_cast<char*>(const_cast<void*>(host)));
  });
  return views;
}

void report(const char* what, std::size_t piece, std::size_t bytes, const std::function<void()>& work) {
  work();
  std::vector<double> rates;
  for (int i = 0; i < repetitions; ++i) {
    const auto start = std::chrono::steady_clock::now();
    work();
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
    rates.push_back(static_cast<double>(bytes) / double{1 << 30} / time.count());
  }
  std::sort(rates.begin(), rates.end());
  std::printf(
      "{\"what\": \"%s\", \"piece\": %zu, \"gib_per_s\": %.2f, \"best\": %.2f, \"repetitions\": %d, \"bytes\": %zu}\n",
      what, piece, rates[rates.size() / 2], rates.back(), repetitions, bytes);
  std::fflush(stdout);
}

void measure(std::size_t size) {
  const Parked block(size);
  std::vector<std::uint64_t> bytes(size / sizeof(std::uint64_t));
  std::mt19937_64 random(1);
  for (auto& word : bytes) word = random();
  std::vector<std::uint64_t> found(bytes.size());
  auto* const from = reinterpret_cast<char*>(bytes.data());
  auto* const to = reinterpret_cast<char*>(found.data());
  const auto compare = [&] {
    if (found != bytes) throw std::runtime_error("other bytes came back");
    std::fill(found.begin(), found.end(), 0);
  };
  for (const std::size_t piece : {64 * mib, 2 * mib, 64 * mib / 1024, 4 * mib / 1024}) {
    report("lowtide_write_paused", piece, size, [&] {
      block.in_pieces(
          piece, [&](std::size_t at, std::size_t n) { must(lowtide_write_paused(block.address + at, from + at, n)); });
    });
    report("lowtide_read_paused", piece, size, [&] {
      block.in_pieces(
          piece, [&](std::size_t at, std::size_t n) { must(lowtide_read_paused(block.address + at, to + at, n)); });
    });
    compare();
    const auto views = views_of(block, piece);
    report("memcpy in", piece, size, [&] {
      block.in_pieces(piece, [&](std::size_t at, std::size_t n) { std::memcpy(views[at / piece], from + at, n); });
    });
    report("memcpy out", piece, size, [&] {
      block.in_pieces(piece, [&](std::size_t at, std::size_t n) { std::memcpy(to + at, views[at / piece], n); });
    });
    compare();
  }
}

}  // namespace

int main(int count, char** arguments) {
  try {
    measure(mib * (count > 1 ? std::strtoull(arguments[1], nullptr, 10) : 1024));
  } catch (const std::exception& failed) {
    std::fprintf(stderr, "bench_read_paused: %s\n", failed.what());
    return 2;
  }
  return 0;
}

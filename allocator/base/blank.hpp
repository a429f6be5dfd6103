// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace lowtide {

/// Memory that nobody has written yet holds, at every device address that is a multiple of 8, a word that belongs to
/// that address: data that was copied from elsewhere, another blank part included, is not taken for it.
///
/// WHAT COUNTS. A whole word that holds its pattern is blank; by chance it does once in 2^64. A range that ends inside
/// a word has a rest of 1 to 7 bytes, which would match by chance far too often: it is blank if its bytes match and the
/// word before it is blank. Only a range of less than a word goes by its bytes alone.
///
/// backends/cuda/kernels/blank.cu says the same on the device.
constexpr std::uint64_t blank_word(std::uint64_t address) noexcept {
  std::uint64_t word = (address ^ 0x6c6f77746964652dull) * 0x9e3779b97f4a7c15ull;
  word ^= word >> 32;
  word *= 0xd6e8feb86659fd93ull;
  return word ^ (word >> 32);
}

constexpr std::size_t blank_unit = sizeof(std::uint64_t);

/// Writes to `to`, which is any host memory, what `bytes` blank bytes at the device's `address` hold, a multiple of 8.
void fill_blank(void* to, std::size_t bytes, std::uint64_t address) noexcept;

/// How many of `bytes` bytes at `from`, a copy of what the device has at `address`, are blank.
std::size_t count_blank(const void* from, std::size_t bytes, std::uint64_t address) noexcept;

/// Whether the `bytes` bytes at `rest`, fewer than a word, are the first ones of the word at `address`.
bool is_blank_rest(const void* rest, std::size_t bytes, std::uint64_t address) noexcept;

/// Calls `visit(offset, bytes)` for each run of blank bytes, in order; none touches the next.
template <class Visit>
void for_each_blank_run(const void* from, std::size_t bytes, std::uint64_t address, Visit visit) {
  const auto* const start = static_cast<const unsigned char*>(from);
  const std::size_t whole = bytes - bytes % blank_unit;
  std::size_t run = 0;
  for (std::size_t offset = 0; offset < whole; offset += blank_unit) {
    std::uint64_t word = 0;
    std::memcpy(&word, start + offset, blank_unit);
    if (word == blank_word(address + offset)) {
      run += blank_unit;
      continue;
    }
    if (run > 0) visit(offset - run, run);
    run = 0;
  }
  const bool may_end_blank = run > 0 || whole == 0;
  if (may_end_blank && is_blank_rest(start + whole, bytes - whole, address + whole)) run += bytes - whole;
  if (run > 0) visit(whole > 0 ? whole - (run - run % blank_unit) : 0, run);
}

}  // namespace lowtide

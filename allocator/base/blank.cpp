// SPDX-License-Identifier: Apache-2.0
#include "allocator/base/blank.hpp"

#include <cstring>

namespace lowtide {

void fill_blank(void* to, std::size_t bytes, std::uint64_t address) noexcept {
  auto* const start = static_cast<unsigned char*>(to);
  const std::size_t whole = bytes - bytes % blank_unit;
  for (std::size_t offset = 0; offset < whole; offset += blank_unit) {
    const auto word = blank_word(address + offset);
    std::memcpy(start + offset, &word, blank_unit);
  }
  const auto word = blank_word(address + whole);
  std::memcpy(start + whole, &word, bytes - whole);
}

bool is_blank_rest(const void* rest, std::size_t bytes, std::uint64_t address) noexcept {
  const auto word = blank_word(address);
  return std::memcmp(rest, &word, bytes) == 0;
}

std::size_t count_blank(const void* from, std::size_t bytes, std::uint64_t address) noexcept {
  std::size_t count = 0;
  for_each_blank_run(from, bytes, address, [&](std::size_t, std::size_t run) { count += run; });
  return count;
}

}  // namespace lowtide

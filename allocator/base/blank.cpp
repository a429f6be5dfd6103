// SPDX-License-Identifier: Apache-2.0
#include "allocator/base/blank.hpp"

#include <algorithm>
#include <cstring>

namespace lowtide {

void fill_blank(void* to, std::size_t bytes, std::uint64_t address) noexcept {
  auto* const start = static_cast<unsigned char*>(to);
  for (std::size_t offset = 0; offset < bytes; offset += blank_unit) {
    const auto word = blank_word(address + offset);
    std::memcpy(start + offset, &word, std::min(blank_unit, bytes - offset));
  }
}

bool holds_blank(const void* from, std::size_t bytes, std::uint64_t address, std::size_t offset) noexcept {
  const auto word = blank_word(address + offset);
  return std::memcmp(static_cast<const unsigned char*>(from) + offset, &word, std::min(blank_unit, bytes - offset)) ==
         0;
}

std::size_t count_blank(const void* from, std::size_t bytes, std::uint64_t address) noexcept {
  std::size_t count = 0;
  for_each_blank_run(from, bytes, address, [&](std::size_t, std::size_t run) { count += run; });
  return count;
}

}  // namespace lowtide

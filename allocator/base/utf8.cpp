// SPDX-License-Identifier: Apache-2.0
#include "allocator/base/utf8.hpp"

namespace lowtide {
namespace {

unsigned byte_at(std::string_view text, std::size_t at) noexcept { return static_cast<unsigned char>(text[at]); }

bool continues(unsigned byte) noexcept { return (byte & 0xC0) == 0x80; }

/// Of the character that begins with `first`, as it says itself; 0: it begins none.
std::size_t length_said_by(unsigned first) noexcept {
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first < 0xE0) return 2;
  if (first >= 0xE0 && first < 0xF0) return 3;
  return first >= 0xF0 && first < 0xF5 ? 4 : 0;
}

/// Whether the first two bytes say what fewer bytes could, or what is no character: a surrogate, or beyond U+10FFFF.
bool means_nothing(unsigned first, unsigned second) noexcept {
  return (first == 0xE0 && second < 0xA0) || (first == 0xED && second >= 0xA0) || (first == 0xF0 && second < 0x90) ||
         (first == 0xF4 && second >= 0x90);
}

}  // namespace

std::size_t utf8_length(std::string_view text) noexcept {
  if (text.empty()) return 0;
  const auto length = length_said_by(byte_at(text, 0));
  if (length > text.size()) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if (!continues(byte_at(text, i))) return 0;
  }
  return length > 1 && means_nothing(byte_at(text, 0), byte_at(text, 1)) ? 0 : length;
}

void make_utf8(std::span<char> text) noexcept {
  while (!text.empty()) {
    const auto length = utf8_length({text.data(), text.size()});
    if (length == 0) text.front() = '?';
    text = text.subspan(length == 0 ? 1 : length);
  }
}

std::string_view utf8_prefix(std::string_view text, std::size_t most) noexcept {
  if (text.size() <= most) return text;
  while (most > 0 && continues(byte_at(text, most))) --most;
  return text.substr(0, most);
}

}  // namespace lowtide

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace lowtide {

/// How many bytes the character at the begin of `text` has; 0 if that is no UTF-8. Overlong forms, surrogates and
/// numbers above U+10FFFF are none: readers refuse them.
std::size_t utf8_length(std::string_view text) noexcept;

/// Puts a '?' in the place of each byte that is no part of UTF-8.
void make_utf8(std::span<char> text) noexcept;

/// The begin of `text`, of at most `most` bytes, which cuts no character.
std::string_view utf8_prefix(std::string_view text, std::size_t most) noexcept;

}  // namespace lowtide

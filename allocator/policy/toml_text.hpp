// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string_view>

namespace lowtide {

/// The line of the first byte that is not ASCII and stands neither in a string nor in a comment, where no TOML of ours
/// has one; nothing if there is none. The parser's look-up of such a character is undefined for some of them
/// (toml++ 3.3), so that they must not reach it.
std::optional<unsigned> stray_non_ascii(std::string_view text) noexcept;

}  // namespace lowtide

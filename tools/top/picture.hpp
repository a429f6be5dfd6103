// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lowtide::tools {

/// How a piece of a line looks; with and without colours its text says the same.
enum class Look { plain, strong, faint, good, busy, bad, bar_1, bar_2, bar_3, bar_4, bar_5, bar_6 };
constexpr int bar_looks = 6;

struct Piece {
  std::string text;
  Look look = Look::plain;
};
using Line = std::vector<Piece>;
/// Lines of text, for a screen or a pipe.
using Picture = std::vector<Line>;

std::string plain_text(const Picture& picture);

}  // namespace lowtide::tools

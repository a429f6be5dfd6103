// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace lowtide::tools {

enum class Colour { plain, green, yellow, red, faint };

/// `text` in a colour, if stdout is a terminal and NO_COLOR is not set.
std::string coloured(std::string_view text, Colour colour);

/// Text that another process chose, safe to print on a terminal: what is no UTF-8, controls it or turns what follows
/// is replaced by '?', and it is cut to `most` bytes, of which there are 3 or more.
std::string printable(std::string_view text, std::size_t most);

bool stdout_is_terminal();
bool stderr_is_terminal();

}  // namespace lowtide::tools

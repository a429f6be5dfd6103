// SPDX-License-Identifier: Apache-2.0
#include "tools/view/terminal.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "allocator/base/env.hpp"
#include "allocator/base/utf8.hpp"

namespace lowtide::tools {
namespace {

bool colours_wanted() { return stdout_is_terminal() && !env("NO_COLOR") && env("TERM").value_or("dumb") != "dumb"; }

int sgr_of(Colour colour) {
  switch (colour) {
    case Colour::plain: return 0;
    case Colour::green: return 32;
    case Colour::yellow: return 33;
    case Colour::red: return 31;
    case Colour::faint: return 2;
  }
  return 0;
}

/// Whether a terminal may do something else with the character than show it: control characters of both kinds, and
/// those that turn the direction of what follows.
bool acts(std::string_view character) {
  const auto byte = [&](std::size_t at) { return static_cast<unsigned char>(character[at]); };
  if (character.size() == 1) return byte(0) < 0x20 || byte(0) == 0x7F;
  if (character.size() == 2) return byte(0) == 0xC2 && byte(1) < 0xA0;
  const bool turns = byte(0) == 0xE2 && ((byte(1) == 0x80 && byte(2) >= 0xAA && byte(2) <= 0xAE) ||
                                         (byte(1) == 0x81 && byte(2) >= 0xA6 && byte(2) <= 0xA9));
  const bool is_none = byte(0) == 0xEF && byte(1) == 0xBF && byte(2) >= 0xBE;  // U+FFFE, U+FFFF
  return character.size() == 3 && (turns || is_none);
}

}  // namespace

std::string coloured(std::string_view text, Colour colour) {
  if (colour == Colour::plain || !colours_wanted()) return std::string(text);
  return fmt::format("\x1b[{}m{}\x1b[0m", sgr_of(colour), text);
}

std::string printable(std::string_view text, std::size_t most) {
  std::string line;
  for (auto rest = text.size() > most ? utf8_prefix(text, most - 3) : text; !rest.empty();) {
    const auto length = utf8_length(rest);
    const auto character = rest.substr(0, std::max<std::size_t>(length, 1));
    if (length == 0 || acts(character)) {
      line += '?';
    } else {
      line += character;
    }
    rest.remove_prefix(character.size());
  }
  return text.size() > most ? line + "..." : line;
}

bool stdout_is_terminal() { return ::isatty(STDOUT_FILENO) == 1; }
bool stderr_is_terminal() { return ::isatty(STDERR_FILENO) == 1; }

}  // namespace lowtide::tools

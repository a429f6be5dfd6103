// SPDX-License-Identifier: Apache-2.0
#include "tools/view/terminal.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "allocator/base/env.hpp"

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

}  // namespace

std::string coloured(std::string_view text, Colour colour) {
  if (colour == Colour::plain || !colours_wanted()) return std::string(text);
  return fmt::format("\x1b[{}m{}\x1b[0m", sgr_of(colour), text);
}

std::string printable(std::string_view text, std::size_t most) {
  std::string line(text.substr(0, most));
  if (text.size() > most) line.replace(most - 3, 3, "...");
  std::replace_if(
      line.begin(), line.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }, '?');
  return line;
}

bool stdout_is_terminal() { return ::isatty(STDOUT_FILENO) == 1; }
bool stderr_is_terminal() { return ::isatty(STDERR_FILENO) == 1; }

}  // namespace lowtide::tools

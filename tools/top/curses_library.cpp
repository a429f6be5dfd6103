// SPDX-License-Identifier: Apache-2.0
#include "tools/top/curses_library.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include "tools/exit_codes.hpp"

namespace lowtide::tools {
namespace {

constexpr const char* library_name = "libncursesw.so.6";

template <class Symbol>
void find(void* library, Symbol*& symbol, const char* name) {
  symbol = reinterpret_cast<Symbol*>(::dlsym(library, name));
  if (symbol == nullptr) throw CommandError(ExitCode::failed, fmt::format("{} has no {}", library_name, name));
}

}  // namespace

Curses Curses::open() {
  void* const library = ::dlopen(library_name, RTLD_NOW);
  if (library == nullptr) {
    throw CommandError(ExitCode::failed,
                       fmt::format("{} is not on this machine; lowtide top --once prints lines", library_name));
  }
  Curses curses;
  find(library, curses.newterm, "newterm");
  find(library, curses.endwin, "endwin");
  find(library, curses.cbreak, "cbreak");
  find(library, curses.noecho, "noecho");
  find(library, curses.keypad, "keypad");
  find(library, curses.curs_set, "curs_set");
  find(library, curses.has_colors, "has_colors");
  find(library, curses.start_color, "start_color");
  find(library, curses.use_default_colors, "use_default_colors");
  find(library, curses.init_pair, "init_pair");
  find(library, curses.wmove, "wmove");
  find(library, curses.wattr_set, "wattr_set");
  find(library, curses.waddnstr, "waddnstr");
  find(library, curses.werase, "werase");
  find(library, curses.wrefresh, "wrefresh");
  find(library, curses.wtimeout, "wtimeout");
  find(library, curses.wgetch, "wgetch");
  find(library, curses.getmaxx, "getmaxx");
  find(library, curses.getmaxy, "getmaxy");
  find(library, curses.getcurx, "getcurx");
  find(library, curses.stdscr, "stdscr");
  return curses;
}

}  // namespace lowtide::tools

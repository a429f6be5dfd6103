// SPDX-License-Identifier: Apache-2.0
#pragma once

#define NCURSES_NOMACROS 1
#include <curses.h>

namespace lowtide::tools {

/// What a screen needs of libncursesw, opened when it is needed: the command starts without it, and one build serves
/// every machine.
struct Curses {
  decltype(&::newterm) newterm = nullptr;
  decltype(&::endwin) endwin = nullptr;
  decltype(&::cbreak) cbreak = nullptr;
  decltype(&::noecho) noecho = nullptr;
  decltype(&::keypad) keypad = nullptr;
  decltype(&::curs_set) curs_set = nullptr;
  decltype(&::has_colors) has_colors = nullptr;
  decltype(&::start_color) start_color = nullptr;
  decltype(&::use_default_colors) use_default_colors = nullptr;
  decltype(&::init_pair) init_pair = nullptr;
  decltype(&::wmove) wmove = nullptr;
  decltype(&::wattr_set) wattr_set = nullptr;
  decltype(&::waddnstr) waddnstr = nullptr;
  decltype(&::werase) werase = nullptr;
  decltype(&::wrefresh) wrefresh = nullptr;
  decltype(&::wtimeout) wtimeout = nullptr;
  decltype(&::wgetch) wgetch = nullptr;
  decltype(&::getmaxx) getmaxx = nullptr;
  decltype(&::getmaxy) getmaxy = nullptr;
  decltype(&::getcurx) getcurx = nullptr;
  WINDOW** stdscr = nullptr;

  /// Throws CommandError (failed) if it is not on this machine.
  static Curses open();
};

}  // namespace lowtide::tools

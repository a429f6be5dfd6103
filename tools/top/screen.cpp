// SPDX-License-Identifier: Apache-2.0
#include "tools/top/screen.hpp"

#define NCURSES_NOMACROS 1
#include <curses.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <clocale>
#include <csignal>

#include "tools/exit_codes.hpp"

namespace lowtide::tools {
namespace {

struct Shade {
  Look look;
  short colour;
  attr_t attributes;
};

constexpr std::array shades{
    Shade{Look::strong, -1, A_BOLD},           Shade{Look::faint, -1, A_DIM},
    Shade{Look::good, COLOR_GREEN, 0},         Shade{Look::busy, COLOR_YELLOW, A_BOLD},
    Shade{Look::bad, COLOR_RED, A_BOLD},       Shade{Look::bar_1, COLOR_BLUE, A_BOLD},
    Shade{Look::bar_2, COLOR_YELLOW, A_BOLD},  Shade{Look::bar_3, COLOR_GREEN, A_BOLD},
    Shade{Look::bar_4, COLOR_MAGENTA, A_BOLD}, Shade{Look::bar_5, COLOR_CYAN, A_BOLD},
    Shade{Look::bar_6, COLOR_RED, A_BOLD},
};

volatile std::sig_atomic_t asked_to_end = 0;
void ask_to_end(int) { asked_to_end = 1; }

short pair_of(Look look) { return static_cast<short>(static_cast<int>(look) + 1); }

void put(int row, const Line& line, int width) {
  ::move(row, 0);
  for (const auto& piece : line) {
    const auto shade =
        std::find_if(shades.begin(), shades.end(), [&](const Shade& each) { return each.look == piece.look; });
    const attr_t attributes = shade == shades.end() ? A_NORMAL : shade->attributes;
    ::attr_set(attributes, ::has_colors() && shade != shades.end() ? pair_of(piece.look) : short{0}, nullptr);
    const int room = width - getcurx(stdscr);
    if (room > 0) ::addnstr(piece.text.c_str(), std::min(room, static_cast<int>(piece.text.size())));
  }
  ::attr_set(A_NORMAL, 0, nullptr);
}

}  // namespace

Screen::Screen(bool colours) {
  std::setlocale(LC_CTYPE, "");
  if (::newterm(nullptr, stdout, stdin) == nullptr)
    throw CommandError(ExitCode::usage, "this terminal is not known here (TERM); --once prints lines");
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) std::signal(signal, ask_to_end);
  ::cbreak();
  ::noecho();
  ::keypad(stdscr, TRUE);
  ::curs_set(0);
  if (!colours || !::has_colors()) return;
  ::start_color();
  ::use_default_colors();
  for (const auto& shade : shades) ::init_pair(pair_of(shade.look), shade.colour, -1);
}

Screen::~Screen() { ::endwin(); }

std::size_t Screen::width() const { return static_cast<std::size_t>(std::max(getmaxx(stdscr), 1)); }

void Screen::show(const Line& title, const Picture& picture) {
  const int rows = std::max(getmaxy(stdscr) - 2, 1);
  const auto last =
      picture.size() > static_cast<std::size_t>(rows) ? picture.size() - static_cast<std::size_t>(rows) : 0;
  first_ = std::min(first_, last);
  ::erase();
  put(0, title, getmaxx(stdscr));
  for (int row = 0; row < rows && first_ + static_cast<std::size_t>(row) < picture.size(); ++row)
    put(row + 2, picture[first_ + static_cast<std::size_t>(row)], getmaxx(stdscr));
  ::refresh();
}

bool Screen::wait(int milliseconds) {
  // A signal ends the poll too: that of a window that was resized, or one that asks for the end.
  pollfd terminal{STDIN_FILENO, POLLIN, 0};
  const int ready = ::poll(&terminal, 1, milliseconds);
  if (ready > 0 && (terminal.revents & (POLLHUP | POLLERR | POLLNVAL)) != 0) return false;
  ::timeout(0);
  for (int key = ::getch(); key != ERR; key = ::getch()) {
    if (key == 'q') return false;
    if (key == KEY_DOWN) ++first_;
    if (key == KEY_UP && first_ > 0) --first_;
  }
  return asked_to_end == 0;
}

}  // namespace lowtide::tools

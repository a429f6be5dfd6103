// SPDX-License-Identifier: Apache-2.0
#include "tools/top/screen.hpp"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <clocale>
#include <csignal>

#include "tools/exit_codes.hpp"
#include "tools/top/curses_library.hpp"

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

}  // namespace

Screen::Screen(bool colours) : curses_(std::make_unique<Curses>(Curses::open())) {
  std::setlocale(LC_CTYPE, "");
  if (curses_->newterm(nullptr, stdout, stdin) == nullptr)
    throw CommandError(ExitCode::usage, "this terminal is not known here (TERM); --once prints lines");
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) std::signal(signal, ask_to_end);
  curses_->cbreak();
  curses_->noecho();
  curses_->keypad(*curses_->stdscr, TRUE);
  curses_->curs_set(0);
  colours_ = colours && curses_->has_colors();
  if (!colours_) return;
  curses_->start_color();
  curses_->use_default_colors();
  for (const auto& shade : shades) curses_->init_pair(pair_of(shade.look), shade.colour, -1);
}

Screen::~Screen() { curses_->endwin(); }

std::size_t Screen::width() const { return static_cast<std::size_t>(std::max(curses_->getmaxx(*curses_->stdscr), 1)); }

void Screen::put(int row, const Line& line) {
  auto* const window = *curses_->stdscr;
  curses_->wmove(window, row, 0);
  for (const auto& piece : line) {
    const auto shade =
        std::find_if(shades.begin(), shades.end(), [&](const Shade& each) { return each.look == piece.look; });
    const bool plain = shade == shades.end();
    curses_->wattr_set(window, plain ? A_NORMAL : shade->attributes,
                       !plain && colours_ ? pair_of(piece.look) : short{0}, nullptr);
    const int room = static_cast<int>(width()) - curses_->getcurx(window);
    if (room > 0) curses_->waddnstr(window, piece.text.c_str(), std::min(room, static_cast<int>(piece.text.size())));
  }
  curses_->wattr_set(window, A_NORMAL, 0, nullptr);
}

void Screen::show(const Line& title, const Picture& picture) {
  auto* const window = *curses_->stdscr;
  const auto rows = static_cast<std::size_t>(std::max(curses_->getmaxy(window) - 2, 1));
  first_ = std::min(first_, picture.size() > rows ? picture.size() - rows : 0);
  curses_->werase(window);
  put(0, title);
  for (std::size_t row = 0; row < rows && first_ + row < picture.size(); ++row)
    put(static_cast<int>(row) + 2, picture[first_ + row]);
  curses_->wrefresh(window);
}

bool Screen::wait(int milliseconds) {
  // A signal ends the poll too: that of a window that was resized, or one that asks for the end.
  pollfd terminal{STDIN_FILENO, POLLIN, 0};
  const int ready = ::poll(&terminal, 1, milliseconds);
  if (ready > 0 && (terminal.revents & (POLLHUP | POLLERR | POLLNVAL)) != 0) return false;
  auto* const window = *curses_->stdscr;
  curses_->wtimeout(window, 0);
  for (int key = curses_->wgetch(window); key != ERR; key = curses_->wgetch(window)) {
    if (key == 'q') return false;
    if (key == KEY_DOWN) ++first_;
    if (key == KEY_UP && first_ > 0) --first_;
  }
  return asked_to_end == 0;
}

}  // namespace lowtide::tools

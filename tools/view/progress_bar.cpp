// SPDX-License-Identifier: Apache-2.0
#include "tools/view/progress_bar.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "tools/view/terminal.hpp"

namespace lowtide::tools {

ProgressBar::~ProgressBar() {
  if (drawn_) std::fputs("\r\x1b[K", stderr);
}

void ProgressBar::update(pid_t process, Bytes done, Bytes total) {
  const std::lock_guard lock(mutex_);
  shares_[process] = {done, total};
  if (!stderr_is_terminal() || std::chrono::steady_clock::now() - start_ < std::chrono::seconds{1}) return;
  Share sum;
  for (const auto& [pid, share] : shares_) {
    sum.done += share.done;
    sum.total += share.total;
  }
  constexpr int width = 30;
  const auto part = sum.total.value == 0
                        ? 0.0
                        : std::min(1.0, static_cast<double>(sum.done.value) / static_cast<double>(sum.total.value));
  const auto filled = static_cast<std::size_t>(part * width);
  fmt::print(stderr, "\r{} [{:<{}}] {:3.0f} %  {} of {}\x1b[K", verb_, std::string(filled, '#'), width, part * 100.0,
             to_text(sum.done), to_text(sum.total));
  drawn_ = true;
}

}  // namespace lowtide::tools

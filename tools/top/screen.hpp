// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>

#include "tools/top/picture.hpp"

namespace lowtide::tools {

struct Curses;

/// The whole terminal, until it goes: then everything is as it was, also after an exception. One at a time.
class Screen {
 public:
  /// Throws CommandError if the terminal cannot do it, or the library is not here.
  explicit Screen(bool colours);
  ~Screen();
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  std::size_t width() const;
  /// `title` is the first line. What does not fit is scrolled to with the arrow keys.
  void show(const Line& title, const Picture& picture);
  /// Waits at most `milliseconds`, or until a key is pressed. False if it asks for the end.
  bool wait(int milliseconds);

 private:
  void put(int row, const Line& line);

  const std::unique_ptr<Curses> curses_;
  bool colours_ = false;
  std::size_t first_ = 0;  ///< the first line that is shown
};

}  // namespace lowtide::tools

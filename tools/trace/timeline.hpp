// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tools/trace/profile.hpp"

namespace lowtide::tools {

/// Thins a course of states out to about as many as a screen has pixels, while it is told. Of each piece of time it
/// keeps the first and the last state, and those with the smallest and the largest used bytes.
class Timeline {
 public:
  /// Times never go back; one that does counts as the latest so far.
  void add(std::int64_t time, std::uint64_t used, std::span<const std::uint64_t> bytes);
  std::vector<Point> points() const;

 private:
  struct Piece {
    std::uint64_t place = 0;  ///< in units of width_
    Point first;
    Point smallest;
    Point largest;
    Point last;
  };

  void widen();

  std::vector<Piece> pieces_;
  std::int64_t start_ = 0;
  std::uint64_t width_ = 1000;  ///< ns
};

}  // namespace lowtide::tools

// SPDX-License-Identifier: Apache-2.0
#include "tools/trace/timeline.hpp"

#include <algorithm>

namespace lowtide::tools {
namespace {

constexpr std::uint64_t most_pieces = 1500;

void set(Point& point, std::int64_t time, std::uint64_t used, std::span<const std::uint64_t> bytes) {
  point.time = time;
  point.used = used;
  point.bytes.assign(bytes.begin(), bytes.end());  // keeps its room
}

}  // namespace

/// Twice the time in each piece.
void Timeline::widen() {
  width_ *= 2;
  std::size_t kept = 0;
  for (std::size_t i = 0; i < pieces_.size(); ++i) {
    auto& piece = pieces_[i];
    piece.place /= 2;
    if (kept > 0 && pieces_[kept - 1].place == piece.place) {
      auto& before = pieces_[kept - 1];
      if (piece.smallest.used < before.smallest.used) before.smallest = std::move(piece.smallest);
      if (piece.largest.used > before.largest.used) before.largest = std::move(piece.largest);
      before.last = std::move(piece.last);
    } else {
      if (kept != i) pieces_[kept] = std::move(piece);
      ++kept;
    }
  }
  pieces_.resize(kept);
}

void Timeline::add(std::int64_t time, std::uint64_t used, std::span<const std::uint64_t> bytes) {
  if (pieces_.empty()) start_ = time;
  if (!pieces_.empty()) time = std::max(time, pieces_.back().last.time);
  const auto elapsed = static_cast<std::uint64_t>(time) - static_cast<std::uint64_t>(start_);
  while (elapsed / width_ >= most_pieces) widen();
  if (pieces_.empty() || pieces_.back().place != elapsed / width_) {
    auto& piece = pieces_.emplace_back();
    piece.place = elapsed / width_;
    for (auto* point : {&piece.first, &piece.smallest, &piece.largest, &piece.last}) set(*point, time, used, bytes);
    return;
  }
  auto& piece = pieces_.back();
  if (used < piece.smallest.used) set(piece.smallest, time, used, bytes);
  if (used > piece.largest.used) set(piece.largest, time, used, bytes);
  set(piece.last, time, used, bytes);
}

std::vector<Point> Timeline::points() const {
  std::vector<Point> points;
  const auto add_point = [&](const Point& point) {
    const bool repeats = !points.empty() && points.back().used == point.used && points.back().bytes == point.bytes;
    if (!repeats) points.push_back(point);
  };
  for (const auto& piece : pieces_) {
    const bool falls = piece.largest.time < piece.smallest.time;
    add_point(piece.first);
    add_point(falls ? piece.largest : piece.smallest);
    add_point(falls ? piece.smallest : piece.largest);
    add_point(piece.last);
  }
  // The end of the time is seen, though nothing changed there.
  if (!pieces_.empty() && points.back().time != pieces_.back().last.time) points.push_back(pieces_.back().last);
  return points;
}

}  // namespace lowtide::tools

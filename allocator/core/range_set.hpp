// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "allocator/base/bytes.hpp"

namespace lowtide {

/// Some bytes of a block, as offsets from its start: ranges in order that neither touch nor overlap. Not thread-safe.
class RangeSet {
 public:
  struct Range {
    Bytes start;
    Bytes size;
    Bytes end() const { return start + size; }
    bool operator==(const Range&) const = default;
  };

  /// May throw std::bad_alloc, and then nothing changed.
  void add(Bytes start, Bytes size) {
    if (size.value == 0) return;
    const auto first = std::find_if(ranges_.begin(), ranges_.end(), [&](const Range& r) { return r.end() >= start; });
    auto last = first;
    Bytes from = start;
    Bytes until = start + size;
    for (; last != ranges_.end() && last->start <= until; ++last) {
      from = std::min(from, last->start);
      until = std::max(until, last->end());
    }
    if (first == last) {
      ranges_.insert(first, {from, until - from});
      return;
    }
    *first = {from, until - from};
    ranges_.erase(std::next(first), last);
  }
  void clear() noexcept { ranges_ = {}; }

  bool empty() const noexcept { return ranges_.empty(); }
  bool covers(Bytes start, Bytes size) const noexcept {
    return std::any_of(ranges_.begin(), ranges_.end(),
                       [&](const Range& r) { return r.start <= start && start + size <= r.end(); });
  }
  /// What of a range is in the set, and what is not.
  std::vector<Range> within(Bytes start, Bytes size) const {
    std::vector<Range> parts;
    for (const Range& range : ranges_) {
      const Bytes from = std::max(start, range.start);
      const Bytes until = std::min(start + size, range.end());
      if (from < until) parts.push_back({from, until - from});
    }
    return parts;
  }
  std::vector<Range> missing(Bytes start, Bytes size) const {
    std::vector<Range> parts;
    Bytes from = start;
    for (const Range& part : within(start, size)) {
      if (from < part.start) parts.push_back({from, part.start - from});
      from = part.end();
    }
    if (from < start + size) parts.push_back({from, start + size - from});
    return parts;
  }
  Bytes bytes() const noexcept {
    Bytes sum;
    for (const Range& range : ranges_) sum += range.size;
    return sum;
  }
  std::span<const Range> ranges() const noexcept { return ranges_; }

 private:
  std::vector<Range> ranges_;
};

}  // namespace lowtide

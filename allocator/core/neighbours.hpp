// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "allocator/core/region.hpp"

namespace lowtide {

/// How much one driver call may span. A call over thousands of handles keeps the driver's lock for long, and with it
/// every allocation of the process.
struct RunLimit {
  std::size_t extents;
  Bytes bytes;
};

/// The length of the run that `extents`, which is not empty, begins with: extents of one region that follow each other
/// without a gap in one reservation. At least 1.
inline std::size_t run_length(std::span<Extent* const> extents, RunLimit limit) noexcept {
  Bytes bytes = extents.front()->range().size;
  std::size_t length = 1;
  if (extents.front()->region.backend.capabilities().reserves_each) return length;
  for (; length < extents.size() && length < limit.extents; ++length) {
    const Extent& last = *extents[length - 1];
    const Extent& next = *extents[length];
    bytes += next.range().size;
    if (&next.region != &last.region || next.range().start != last.range().end() || bytes > limit.bytes) break;
  }
  return length;
}

/// Calls `work(run)` for each run in turn, until one fails.
template <class Work>
Status for_each_run(std::span<Extent* const> extents, RunLimit limit, Work work) {
  while (!extents.empty()) {
    const auto run = extents.first(run_length(extents, limit));
    if (auto status = work(run); !status) return status;
    extents = extents.subspan(run.size());
  }
  return {};
}

}  // namespace lowtide

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tools/trace/profile.hpp"

namespace lowtide::tools {

/// Curves of one device, from the lowest up.
struct Stack {
  std::vector<Series> series;
  std::vector<std::vector<std::uint64_t>> bytes;  ///< by series, then by point
};

/// The largest tags are lowest; what is not tagged comes above. What is never there is left out, and small tags beyond
/// what eyes can tell apart are one.
Stack stack_of(const DeviceProfile& device);

/// The span of all points, ns since 1970; 0 and 0 if there are none.
struct Span {
  std::int64_t start = 0;
  std::int64_t end = 0;
  /// Below 0 before the first point: a phase may begin there.
  double seconds(std::int64_t time) const {
    return time < start ? -seconds_between(time, start) : seconds_between(start, time);
  }
};
Span span_of(const Profile& profile);

}  // namespace lowtide::tools

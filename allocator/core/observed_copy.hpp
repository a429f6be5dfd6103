// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <span>

#include "allocator/core/extent.hpp"
#include "allocator/core/observer.hpp"
#include "allocator/core/region.hpp"

namespace lowtide {

/// The time from its making to `done`, in which a transition copied. The copies of one device go on beside each other,
/// so that only their sum has a duration.
class ObservedCopy {
 public:
  ObservedCopy(Observer* observer, Observer::Copy direction) noexcept
      : observer_(observer), direction_(direction), begin_(observer == nullptr ? Clock::time_point{} : Clock::now()) {}

  /// `bytes_of(extent)` were copied of each of `extents`. Never allocates.
  template <class BytesOf>
  void done(std::span<Extent* const> extents, BytesOf bytes_of) const noexcept {
    if (observer_ == nullptr) return;
    const auto time = Clock::now() - begin_;
    std::array<Row, most_devices> rows{};
    for (const Extent* extent : extents) {
      const auto device = static_cast<std::size_t>(index_of(extent->region.backend.device()));
      const Bytes bytes = bytes_of(*extent);
      if (bytes.value == 0 || device >= rows.size()) continue;
      if (rows[device].bytes.value == 0) rows[device].first = extent->range().start;
      rows[device].bytes += bytes;
    }
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const DeviceId device{static_cast<int>(i)};
      if (rows[i].bytes.value > 0) observer_->copied(direction_, device, rows[i].first, rows[i].bytes, time);
    }
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::size_t most_devices = 64;
  struct Row {
    DeviceAddress first;
    Bytes bytes;
  };
  Observer* const observer_;
  const Observer::Copy direction_;
  const Clock::time_point begin_;
};

}  // namespace lowtide

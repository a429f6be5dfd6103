// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/core/held_addresses.hpp"

namespace lowtide::portable {

/// The addresses on both sides of a place, held for as long as it is somebody's. With both of them and the place free,
/// and nothing free above, the host's answer to a driver that wants the place's size lies in the place or before it,
/// and what the driver makes of that by aligning it is the place. That is so for drivers that
/// - ask for `alignment` less a page beside the size and take the first multiple of it (NVIDIA's of 32 MiB,
/// 580.159.04),
/// - or do so with 2 MiB,
/// and for hosts that give the upper end of the highest gap (Linux), or of one that is 2 MiB larger, aligned to 2 MiB
/// (from 6.7 on, until the size has to be a multiple of it for that).
class Margins {
 public:
  static constexpr Bytes alignment = 32_MiB;

  Margins() = default;
  /// As far as they are free.
  explicit Margins(AddressRange place) noexcept
      : before_({{place.start.value - most_before.value}, most_before}), after_({place.end(), most_after}) {}

  bool whole() const noexcept { return before_ && after_; }

 private:
  static constexpr Bytes page = 4_KiB;
  static constexpr Bytes huge_page = 2_MiB;
  static constexpr Bytes most_after = huge_page - page;
  static constexpr Bytes most_before = alignment + huge_page - page;

  HeldAddresses before_;
  HeldAddresses after_;
};

}  // namespace lowtide::portable

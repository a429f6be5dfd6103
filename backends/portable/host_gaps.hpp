// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "allocator/core/held_addresses.hpp"

namespace lowtide::portable {

/// The free addresses of this process, as the host deals them out: a driver asks it for addresses of its choice, and it
/// gives those at the upper end of the highest gap that is large enough. So with all gaps held above a place, and the
/// place let go, the driver's next memory of that size comes to lie there.
class HostGaps {
 public:
  /// Holds what is free above `from`, as far as the host lets it. What other threads map meanwhile comes to lie below.
  void hold_above(DeviceAddress from) noexcept;
  void let_go() noexcept { held_.clear(); }

  /// The first mapping of the process that has addresses of `range`; an empty range if there is none.
  static AddressRange mapped_in(AddressRange range);

 private:
  std::vector<HeldAddresses> held_;
};

}  // namespace lowtide::portable

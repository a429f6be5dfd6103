// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "allocator/core/types.hpp"

namespace lowtide::portable {

/// The addresses of this process as the host deals them out: a driver asks it for addresses of its choice, and it
/// gives those at the upper end of the highest gap that is large enough. So with all such gaps held above a place, and
/// the place let go, the driver's next memory of that size comes to lie there.

/// What is free above `from` in pieces of at least `least`, as far as others may take it: none under a limit of
/// address space, of which they would miss what is held. May throw std::bad_alloc.
std::vector<AddressRange> host_gaps(DeviceAddress from, Bytes least);

/// The first mapping of the process that has addresses of `range`; an empty range if there is none. May throw
/// std::bad_alloc.
AddressRange host_mapping_in(AddressRange range);

}  // namespace lowtide::portable

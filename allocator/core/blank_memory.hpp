// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <vector>

#include "allocator/base/blank.hpp"
#include "allocator/core/backend.hpp"

namespace lowtide {

// Blank memory of any size, on the device where that can, else on the host, at the price of a copy. Ranges begin at a
// multiple of 8. Nothing else works on them, and copies and fills of them are done.

/// The ranges hold their pattern when this returns.
Status fill_blank(Backend& backend, std::span<const AddressRange> ranges);

/// What of the ranges still does, to the byte, in order; runs that touch are one unless they lie in two ranges.
Result<std::vector<AddressRange>> find_blank(Backend& backend, std::span<const AddressRange> ranges);

}  // namespace lowtide

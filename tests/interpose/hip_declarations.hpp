// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>

namespace lowtide::test {

/// Sizes, places and numbers of HIP's types, in one order: of our declarations, and of the vendor's.
std::span<const std::size_t> our_hip();
std::span<const std::size_t> vendors_hip();

}  // namespace lowtide::test

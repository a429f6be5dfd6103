// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/policy/keys.hpp"

namespace lowtide {

/// The keys about what is recorded.
std::span<const Key> trace_keys() noexcept;

}  // namespace lowtide

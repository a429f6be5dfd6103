// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "allocator/policy/keys.hpp"

namespace lowtide {

/// The scalar keys of the sync policy, a part of configuration_keys().
std::span<const Key> sync_keys() noexcept;

}  // namespace lowtide

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/policy/keys.hpp"

namespace lowtide {

/// The keys about what a tag's bytes are, and who says that they are valid.
std::span<const Key> content_keys() noexcept;

}  // namespace lowtide

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/trace/reader.hpp"
#include "tools/trace/profile.hpp"

namespace lowtide::tools {

/// Reads all events of `reader` once.
Profile build_profile(trace::Reader& reader);

}  // namespace lowtide::tools

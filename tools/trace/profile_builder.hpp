// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include "allocator/trace/reader.hpp"
#include "tools/trace/profile.hpp"

namespace lowtide::tools {

/// Reads all events of `reader` once. `on_event` is called before each, for a progress bar.
Profile build_profile(trace::Reader& reader, const std::function<void()>& on_event);

}  // namespace lowtide::tools

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "allocator/trace/reader.hpp"
#include "tools/trace/profile.hpp"

namespace lowtide::tools {

/// Whether it is a file that begins as a trace does; a pipe is not touched. Throws CommandError (not_found, permission)
/// if it cannot be read.
bool is_trace(const std::string& path);

/// Throws CommandError (usage) if one of them is no trace.
trace::Reader open_traces(const std::vector<std::string>& paths);

/// Calls `visit` with every event, under a progress bar.
void for_each_event(trace::Reader& reader, const std::function<void(const trace::TraceEvent&)>& visit);

/// Traces and logs, in any mix. Throws CommandError.
Profile load_profile(const std::vector<std::string>& paths);

}  // namespace lowtide::tools

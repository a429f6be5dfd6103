// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "allocator/base/result.hpp"
#include "allocator/base/unique_fd.hpp"

namespace lowtide::trace {

/// `pattern` with %p, %h and %% replaced by the PID, the host's name and a %. Code::config for a % before anything
/// else, and for a path that is not absolute. May throw std::bad_alloc.
Result<std::string> expand_path(std::string_view pattern);

/// A new file at `path`, open for reading and writing and locked as this process's. What is there is replaced if it is
/// a trace, or empty, that no process records to. Code::config or Code::busy otherwise.
Result<UniqueFd> make_trace_file(const std::string& path);

}  // namespace lowtide::trace

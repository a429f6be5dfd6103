// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace lowtide::trace {

/// Fills what the header of a trace says of this process. Unknown is 0 or "".
struct FileHeader;
void fill_in_process(FileHeader& header) noexcept;

/// ns of CLOCK_MONOTONIC.
std::uint64_t monotonic_now() noexcept;

}  // namespace lowtide::trace

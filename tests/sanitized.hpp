// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace lowtide::test {

// A sanitizer looks at memory and threads, not at states, and makes a run ten times slower: it gets samples of what is
// exhaustive elsewhere.
#if defined(__SANITIZE_THREAD__)
constexpr bool sanitized = true;
/// Every how many-th of all single faults is played.
constexpr std::size_t fault_step = 10;
#elif defined(__SANITIZE_ADDRESS__)
constexpr bool sanitized = true;
constexpr std::size_t fault_step = 4;
#else
constexpr bool sanitized = false;
constexpr std::size_t fault_step = 1;
#endif

}  // namespace lowtide::test

// SPDX-License-Identifier: Apache-2.0
#pragma once

// The driver ABI under its real names: the macro undoes cuda.h's renaming of cuMemAlloc to cuMemAlloc_v2 and declares
// the per-thread default stream variants; the visibility makes every declared function an export of this library.
#define __CUDA_API_VERSION_INTERNAL
#pragma GCC visibility push(default)
#include <cuda.h>
#pragma GCC visibility pop

#include <cstdint>

namespace lowtide::sim {

using Address = std::uint64_t;
/// The value of a CUcontext.
using ContextId = std::uint64_t;

/// The most devices LOWTIDE_SIM_DEVICES may ask for.
constexpr int most_devices = 16;
/// Granularity of physical memory and of reservations.
constexpr std::uint64_t granularity = std::uint64_t{2} << 20;
/// What plain allocations are charged in multiples of, and the unit of the host's protection.
constexpr std::uint64_t page = 4096;

constexpr std::uint64_t round_up_to(std::uint64_t size, std::uint64_t unit) { return (size + unit - 1) / unit * unit; }

}  // namespace lowtide::sim

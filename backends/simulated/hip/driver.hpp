// SPDX-License-Identifier: Apache-2.0
#pragma once

#define __CUDA_API_VERSION_INTERNAL  // cuMemAlloc_v2 under its own name
#include <cuda.h>

#include <optional>

namespace lowtide::sim::hip {

/// The functions of a libcuda.so.1.
struct Driver {
#define DRIVER(name) decltype(&::name) name = nullptr;
#define OPTIONAL(name) DRIVER(name)
#include "backends/simulated/hip/driver.def"
#undef OPTIONAL
#undef DRIVER
};

/// Opens libcuda.so.1 and reads its own functions from its symbol table, not through dlsym: AMD's library does not pass
/// the doors of a preload either when it calls what lies below it. Empty, and a line on stderr, where there is no
/// driver or it lacks a function.
std::optional<Driver> open_driver();

}  // namespace lowtide::sim::hip

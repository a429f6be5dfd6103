// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "shim/preload/hip_functions.h"

namespace lowtide::test {

/// Where the fake runtime's allocations lie.
inline void* const runtime_address = reinterpret_cast<void*>(0x600000000000);

/// What its hipLaunchKernel expects to be told.
inline const void* const launched = reinterpret_cast<void*>(10);

}  // namespace lowtide::test

/// How often the fake runtime's counting functions were called.
extern "C" int fake_hip_calls();
/// Leaves an error on the calling thread, as a failed call does.
extern "C" void fake_hip_fail();

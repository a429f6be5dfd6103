// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>

namespace lowtide {

/// True if the library on whose behalf the calling hook runs matches one of `patterns` (globs of a file name). That is
/// the first one up the stack which is neither Lowtide, nor the driver, nor a shared CUDA runtime. A library with an
/// embedded runtime, as NCCL has, is its own caller. Costs a stack walk of some microseconds: only where a device
/// allocation follows.
bool caller_matches(std::span<const std::string> patterns) noexcept;

}  // namespace lowtide

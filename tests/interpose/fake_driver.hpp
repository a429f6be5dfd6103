// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tests/interpose/cuda_abi.hpp"

namespace lowtide::test {

/// Where the fake driver's allocations lie.
constexpr CUdeviceptr driver_address = 0x600000000000;

/// What the second address of cuMemFreeAsync answers.
constexpr CUresult twin_result = CUDA_ERROR_NOT_PERMITTED;

}  // namespace lowtide::test

/// How often the fake driver's counting functions were called.
extern "C" int fake_driver_calls();

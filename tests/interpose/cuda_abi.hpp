// SPDX-License-Identifier: Apache-2.0
#pragma once

// The driver's functions under their ABI names.
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>

// SPDX-License-Identifier: Apache-2.0
// A library that uses the GPU, opened while the program runs. Built under two names: a communication library's and one
// that means nothing.
#include <cuda.h>

#define PLUGIN_API extern "C" __attribute__((visibility("default")))

/// 4 MiB of device memory in the current context; 0 if there is none.
PLUGIN_API unsigned long long plugin_allocate() {
  CUdeviceptr address = 0;
  return cuMemAlloc(&address, 4UL << 20) == CUDA_SUCCESS ? address : 0;
}

PLUGIN_API int plugin_free(unsigned long long address) { return cuMemFree(address); }

// SPDX-License-Identifier: Apache-2.0
// Another tool that is preloaded: it counts allocations and passes them on to whoever comes next.
#include <cuda.h>
#include <dlfcn.h>

#define SECOND_API extern "C" __attribute__((visibility("default")))

static int calls = 0;

SECOND_API int second_preload_calls() { return calls; }

#undef cuMemAlloc
SECOND_API CUresult cuMemAlloc_v2(CUdeviceptr* address, size_t size) {
  ++calls;
  using Function = CUresult (*)(CUdeviceptr*, size_t);
  const auto next = reinterpret_cast<Function>(::dlsym(RTLD_NEXT, "cuMemAlloc_v2"));
  return next == nullptr ? CUDA_ERROR_NOT_FOUND : next(address, size);
}

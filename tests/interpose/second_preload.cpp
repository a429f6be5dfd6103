// SPDX-License-Identifier: Apache-2.0
//
// Another preload library, which finds what it wraps by RTLD_NEXT.
#include <dlfcn.h>

#define SECOND_PRELOAD_API extern "C" __attribute__((visibility("default")))

static int calls = 0;

SECOND_PRELOAD_API int second_preload_calls() { return calls; }

SECOND_PRELOAD_API void* second_preload_next(const char* name) {
  void* found = ::dlsym(RTLD_NEXT, name);
  return found;
}

SECOND_PRELOAD_API int puts(const char* line) {
  ++calls;
  const auto next = reinterpret_cast<int (*)(const char*)>(::dlsym(RTLD_NEXT, "puts"));
  return next == nullptr || next == &puts ? -1 : next(line);
}

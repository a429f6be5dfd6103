// SPDX-License-Identifier: Apache-2.0
//
// A library whose RUNPATH leads to librunpath_deep.so, as a wheel's leads to NVRTC.
#include <dlfcn.h>

extern "C" __attribute__((visibility("default"))) int open_by_runpath() {
  void* deep = ::dlopen("librunpath_deep.so", RTLD_NOW);
  if (deep == nullptr) return -1;
  const auto answer = reinterpret_cast<int (*)()>(::dlsym(deep, "runpath_answer"));
  return answer != nullptr ? answer() : -2;
}

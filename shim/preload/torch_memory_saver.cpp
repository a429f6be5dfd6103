// SPDX-License-Identifier: Apache-2.0
// torch_memory_saver's Python calls its functions in the library that was preloaded: they are handed on to the state.
#include "shim/compat/torch_memory_saver.h"

#include <dlfcn.h>

#include <atomic>

#include "shim/preload/driver.hpp"
#include "shim/preload/python_exception.hpp"

namespace lowtide::preload {
namespace {

/// The function of that name in liblowtide.so, which lies beside this library; null if that cannot be loaded. Its
/// answer is kept for ever, and there is one copy of the library, whoever loads it.
void* in_state(std::atomic<void*>& known, const char* name) noexcept {
  if (void* function = known.load(std::memory_order_acquire)) return function;
  const RealLoader loader = real_loader();
  if (loader.dlopen == nullptr || loader.dlsym == nullptr) return nullptr;
  void* const state = loader.dlopen("liblowtide.so", RTLD_NOW | RTLD_LOCAL);
  void* const function = state == nullptr ? nullptr : loader.dlsym(state, name);
  known.store(function, std::memory_order_release);
  return function;
}

void tell(int result) noexcept {
  constexpr int device_memory = -3;  // LOWTIDE_ERROR_DEVICE_MEMORY
  (void)raise_in_python(result == device_memory ? PythonError::out_of_memory : PythonError::other);
}

}  // namespace
}  // namespace lowtide::preload

#define STATE_FUNCTION(name)                            \
  reinterpret_cast<decltype(&name)>([] {                \
    static constinit std::atomic<void*> known{nullptr}; \
    return lowtide::preload::in_state(known, #name);    \
  }())
#define TMS(type, name, parameters, arguments, otherwise)        \
  type name parameters {                                         \
    const auto function = STATE_FUNCTION(name);                  \
    return function != nullptr ? function arguments : otherwise; \
  }
// Its Python ignores what a resume returns, and in a process without doors nothing stands between its next kernel and
// parked memory: it is told by an exception.
#define TMS_RESUME(type, name, parameters, arguments, otherwise)              \
  type name parameters {                                                      \
    const auto function = STATE_FUNCTION(name);                               \
    const auto result = function != nullptr ? function arguments : otherwise; \
    if (result != 0) lowtide::preload::tell(result);                          \
    return result;                                                            \
  }
#include "shim/compat/torch_memory_saver.def"

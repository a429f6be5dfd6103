// SPDX-License-Identifier: Apache-2.0
//
// The doors that hand out addresses: dlsym, dlvsym, dlopen and cuGetProcAddress. The first three are entered in
// assembly, which asks a decider here and forwards by a tail jump when it does not answer.
#include <dlfcn.h>

#include "allocator/base/env.hpp"
#include "shim/preload/driver.hpp"
#include "shim/preload/hooks.hpp"

namespace lowtide::preload {
namespace {

/// Travels in two registers. `answers` false: go on to the real function with the caller's own arguments.
struct Decision {
  std::uintptr_t answers;
  void* answer;
};

constexpr Decision forward{0, nullptr};

// NULL, and the message that dlerror owes the caller: libc has no symbol of that name either.
Decision undefined(const RealLoader& loader, const char* name) noexcept {
  void* libc = loader.dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD);
  return {1, libc == nullptr ? nullptr : loader.dlsym(libc, name)};
}

// The real look-up comes last, so that dlerror speaks of it and not of what we asked in between.
template <typename LookUp>
Decision decide(const RealLoader& loader, std::size_t index, LookUp look_up) noexcept {
  const lowtide_vendor vendor = vendor_of(index);
  const bool driver = find_driver(vendor);
  void* found = look_up();
  if (found == nullptr) return forward;
  if (found != export_address(index)) return {1, substitute(vendor, found)};
  // Found ourselves, through RTLD_DEFAULT or a handle of the program: the truth is whether the driver has that name.
  if (driver && real_address(index) != nullptr) return {1, found};
  return undefined(loader, symbol_names[index]);
}

}  // namespace

extern "C" Decision lowtide_decide_dlsym(void* handle, const char* name) {
  const RealLoader loader = real_loader();
  const std::size_t index = handle == RTLD_NEXT ? symbol_count : find_symbol(name);
  if (index == symbol_count) return forward;
  return decide(loader, index, [&] { return loader.dlsym(handle, name); });
}

extern "C" Decision lowtide_decide_dlvsym(void* handle, const char* name, const char* version) {
  const RealLoader loader = real_loader();
  const std::size_t index = handle == RTLD_NEXT ? symbol_count : find_symbol(name);
  if (index == symbol_count) return forward;
  return decide(loader, index, [&] { return loader.dlvsym(handle, name, version); });
}

/// A library that binds to its own dependencies first would go past every door of ours.
extern "C" int lowtide_decide_dlopen(const char*, int flags) {
  real_loader();
  if ((flags & RTLD_DEEPBIND) == 0 || env_flag("LOWTIDE_KEEP_DEEPBIND")) return flags;
  return flags & ~RTLD_DEEPBIND;
}

// The driver decides what a name, a version and a stream flag mean; only the address it answers is looked at.
template <typename Result>
Result substituted(lowtide_vendor vendor, Result result, void** function) noexcept {
  if (result == Result{} && function != nullptr && find_driver(vendor)) *function = substitute(vendor, *function);
  return result;
}

CUresult hook_cuGetProcAddress(const char* symbol, void** function, int version, cuuint64_t flags) {
  return substituted(LOWTIDE_CUDA, real<Symbol::cuGetProcAddress>(symbol, function, version, flags), function);
}

CUresult hook_cuGetProcAddress_v2(const char* symbol, void** function, int version, cuuint64_t flags,
                                  CUdriverProcAddressQueryResult* status) {
  return substituted(LOWTIDE_CUDA, real<Symbol::cuGetProcAddress_v2>(symbol, function, version, flags, status),
                     function);
}

hipError_t hook_hipGetProcAddress(const char* symbol, void** function, int version, uint64_t flags, void* status) {
  return substituted(LOWTIDE_HIP, real<Symbol::hipGetProcAddress>(symbol, function, version, flags, status), function);
}

hipError_t hook_hipGetDriverEntryPoint(const char* symbol, void** function, unsigned long long flags, void* status) {
  return substituted(LOWTIDE_HIP, real<Symbol::hipGetDriverEntryPoint>(symbol, function, flags, status), function);
}

hipError_t hook_hipGetDriverEntryPoint_spt(const char* symbol, void** function, unsigned long long flags,
                                           void* status) {
  return substituted(LOWTIDE_HIP, real<Symbol::hipGetDriverEntryPoint_spt>(symbol, function, flags, status), function);
}

}  // namespace lowtide::preload

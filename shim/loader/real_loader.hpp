// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace lowtide {

/// The dynamic loader's own functions. Our libraries export dlsym, dlvsym and dlopen, so looking these up by name would
/// find ourselves; calling libc's directly is also what keeps our own look-ups out of our own doors.
struct RealLoader {
  void* (*dlsym)(void* handle, const char* name);
  void* (*dlvsym)(void* handle, const char* name, const char* version);
  void* (*dlopen)(const char* file, int flags);
  char* (*dlerror)();
};

/// Reads them from the dynamic symbol table of libc.so.6, or of libdl.so.2 where that still has them (before
/// glibc 2.34). Members are null only in a process that has mapped neither. Keeps no state, allocates nothing;
/// thread-safe. Costs a walk over the loaded libraries: keep the result.
RealLoader find_real_loader() noexcept;

}  // namespace lowtide

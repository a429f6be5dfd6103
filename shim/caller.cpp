// SPDX-License-Identifier: Apache-2.0
#include "shim/caller.hpp"

#include <dlfcn.h>
#include <fnmatch.h>
#include <unwind.h>

#include <algorithm>
#include <cstring>
#include <string_view>

namespace lowtide {
namespace {

constexpr int most_frames = 32;

struct Walk {
  std::span<const std::string> patterns;
  const void* own_base = nullptr;
  const void* last_base = nullptr;
  int frames = 0;
  bool matches = false;
};

bool is_between(std::string_view file) {
  return file.starts_with("liblowtide") || file.starts_with("libcudart.so") || file.starts_with("libcuda.so");
}

_Unwind_Reason_Code visit(_Unwind_Context* context, void* argument) {
  auto& walk = *static_cast<Walk*>(argument);
  if (++walk.frames > most_frames) return _URC_END_OF_STACK;
  Dl_info info{};
  if (::dladdr(reinterpret_cast<void*>(_Unwind_GetIP(context)), &info) == 0 || info.dli_fname == nullptr) {
    return _URC_NO_REASON;
  }
  if (info.dli_fbase == walk.own_base || info.dli_fbase == walk.last_base) return _URC_NO_REASON;
  walk.last_base = info.dli_fbase;
  const char* slash = std::strrchr(info.dli_fname, '/');
  const char* file = slash == nullptr ? info.dli_fname : slash + 1;
  if (is_between(file)) return _URC_NO_REASON;
  walk.matches = std::any_of(walk.patterns.begin(), walk.patterns.end(),
                             [file](const std::string& pattern) { return ::fnmatch(pattern.c_str(), file, 0) == 0; });
  return _URC_END_OF_STACK;
}

}  // namespace

bool caller_matches(std::span<const std::string> patterns) noexcept {
  if (patterns.empty()) return false;
  Walk walk{patterns};
  Dl_info self{};
  if (::dladdr(reinterpret_cast<void*>(&caller_matches), &self) != 0) walk.own_base = self.dli_fbase;
  _Unwind_Backtrace(&visit, &walk);
  return walk.matches;
}

}  // namespace lowtide

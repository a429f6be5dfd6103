// SPDX-License-Identifier: Apache-2.0
#include "shim/caller.hpp"

#include <dlfcn.h>
#include <unwind.h>

#include <cstring>
#include <new>
#include <string_view>

#include "shim/process.hpp"

namespace lowtide {
namespace {

constexpr int most_frames = 64;

struct Walk {
  std::vector<std::string>& files;
  const void* own_base = nullptr;
  const void* last_base = nullptr;
  int frames = 0;
  bool out_of_memory = false;  // no exception passes the unwinder
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
  try {
    walk.files.emplace_back(file);
  } catch (...) {
    walk.out_of_memory = true;
    return _URC_END_OF_STACK;
  }
  return _URC_NO_REASON;
}

std::vector<std::string> libraries_on_the_stack() {
  std::vector<std::string> files;
  Walk walk{files};
  Dl_info self{};
  if (::dladdr(reinterpret_cast<void*>(&libraries_on_the_stack), &self) != 0) walk.own_base = self.dli_fbase;
  _Unwind_Backtrace(&visit, &walk);
  if (walk.out_of_memory) throw std::bad_alloc();
  return files;
}

}  // namespace

const std::vector<std::string>& CallingThread::libraries() {
  if (!libraries_) libraries_ = libraries_on_the_stack();
  return *libraries_;
}

const std::vector<PythonFrame>& CallingThread::python_frames() {
  if (!python_) python_ = walk_python(&Process::symbol);
  return python_->frames;
}

bool CallingThread::is_called_by(std::span<const std::string> patterns) {
  return !patterns.empty() && !libraries().empty() && matches_any(patterns, libraries().front());
}

}  // namespace lowtide

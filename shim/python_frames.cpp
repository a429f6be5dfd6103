// SPDX-License-Identifier: Apache-2.0
// By what the interpreter in the process exports; we link none.
#include "shim/python_frames.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <array>

#include "allocator/base/unique_fd.hpp"
#include "allocator/policy/traceback.hpp"

namespace lowtide {
namespace {

struct PyThreadState;

/// What `dump` writes about a thread. CPython's dump is made for signal handlers: it needs no GIL and no memory, and
/// reads frames that stand still while their thread is here. It goes through a pipe, which has a bound and ignores
/// RLIMIT_FSIZE; the outermost frames are those that a full one loses. Without descriptors: nothing.
std::string dumped(void (*dump)(int, PyThreadState*), PyThreadState* thread) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) != 0) return {};
  const UniqueFd from(ends[0]);
  const UniqueFd to(ends[1]);
  dump(to.get(), thread);
  std::string text;
  std::array<char, 16384> part;
  for (;;) {
    const auto length = ::read(from.get(), part.data(), part.size());
    if (length <= 0) return text;
    text.append(part.data(), static_cast<std::size_t>(length));
  }
}

bool is_package(const std::string& folder) { return ::access((folder + "/__init__.py").c_str(), F_OK) == 0; }

template <class Function>
Function python(SymbolLookup symbol, const char* name) {
  return reinterpret_cast<Function>(symbol(name));
}

}  // namespace

PythonWalk walk_python(SymbolLookup symbol) {
  const auto this_thread = python<PyThreadState* (*)()>(symbol, "PyGILState_GetThisThreadState");
  PyThreadState* const thread = this_thread == nullptr ? nullptr : this_thread();
  if (thread == nullptr) return {};
  const auto dump = python<void (*)(int, PyThreadState*)>(symbol, "_Py_DumpTraceback");
  if (dump == nullptr) return {{}, true};
  return {frames_in(dumped(dump, thread), is_package), false};
}

}  // namespace lowtide

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "allocator/policy/match.hpp"

namespace lowtide {

/// The address of a name in this process, null if it has none.
using SymbolLookup = void* (*)(const char* name);

struct PythonWalk {
  std::vector<PythonFrame> frames;  ///< the innermost first; as many as CPython dumps, which is 100
  bool hidden = false;              ///< the thread runs Python, and this Python has no way to read its frames
};

/// The Python frames of the calling thread, which may or may not hold the GIL. The GIL is never taken: who holds it may
/// wait for a lock of the allocator that is calling. May throw std::bad_alloc.
PythonWalk walk_python(SymbolLookup symbol);

}  // namespace lowtide

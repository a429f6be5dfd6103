// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "allocator/policy/match.hpp"
#include "shim/python_layout.hpp"

namespace lowtide {

struct PythonWalk {
  static constexpr std::size_t most = 256;
  std::vector<PythonFrame> frames;  ///< the innermost first
  bool hidden = false;              ///< the thread runs Python, in an interpreter whose frames cannot be read
};

/// The Python frames of the calling thread, which may or may not hold the GIL. The GIL is never taken: who holds it may
/// wait for a lock of the allocator that is calling. What is read belongs to this thread and stands still, or never
/// changes; nothing of it is changed, no reference counts either. May throw std::bad_alloc.
PythonWalk walk_python(SymbolLookup symbol);

}  // namespace lowtide

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>

namespace lowtide {

/// The address of a name in this process, null if it has none.
using SymbolLookup = void* (*)(const char* name);

/// Where the members that lead from a thread of CPython to the names of its functions lie, in bytes. No version gives
/// them away without the GIL: 3.11 and 3.12 export a dump for crashes, the others not even that.
struct PythonLayout {
  std::size_t thread_frame = 0;             ///< of the thread's state: the innermost frame, or what has it
  std::optional<std::size_t> holder_frame;  ///< of what has it
  std::size_t frame_back = 0;               ///< of a frame: the one that called it
  std::size_t frame_code = 0;               ///< of a frame: its code object
  std::size_t code_file = 0;                ///< of a code object, a str
  std::size_t code_name = 0;                ///< of a code object, a str
  std::size_t ascii_text = 0;               ///< of a str: where one of ASCII begins
  std::size_t other_text = 0;               ///< of a str: where any other begins
};

/// That of the interpreter in this process: nothing for one that is not known. A build that differs from its version's
/// usual one (--with-trace-refs) is only found out by the types of what lies there.
std::optional<PythonLayout> python_layout(SymbolLookup symbol);

}  // namespace lowtide

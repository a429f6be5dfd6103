// SPDX-License-Identifier: Apache-2.0
#include "shim/python_layout.hpp"

#include <cstdint>
#include <cstdio>
#include <cstring>

namespace lowtide {
namespace {

/// Up to 3.12, whose members stay where they are from the first release of a minor version to its last.
std::optional<PythonLayout> by_version(int minor) {
  switch (minor) {
    case 9:
    case 10: return PythonLayout{24, std::nullopt, 24, 32, 104, 112, 48, 72};
    case 11: return PythonLayout{56, 8, 48, 32, 112, 120, 48, 72};
    case 12: return PythonLayout{56, 0, 8, 0, 112, 120, 40, 56};
    default: return std::nullopt;
  }
}

/// From 3.13 on the runtime begins with a table of its own offsets, made for debuggers. Which word says what is fixed
/// for a minor version.
std::optional<PythonLayout> by_own_table(const std::uint64_t* words, int minor) {
  if (words == nullptr || std::memcmp(words, "xdebugpy", 8) != 0) return std::nullopt;
  const bool without_gil = words[2] != 0;
  if (without_gil || (minor != 13 && minor != 14)) return std::nullopt;
  const std::size_t thread = minor == 13 ? 19 : 22;
  const std::size_t frame = thread + 9;
  const std::size_t code = frame + (minor == 13 ? 6 : 8);
  return PythonLayout{
      words[thread + 4], std::nullopt, words[frame + 1], words[frame + 2], words[code + 1], words[code + 2], 40, 56};
}

}  // namespace

std::optional<PythonLayout> python_layout(SymbolLookup symbol) {
  const auto version = reinterpret_cast<const char* (*)()>(symbol("Py_GetVersion"));
  int minor = 0;
  if (version == nullptr || std::sscanf(version(), "3.%d", &minor) != 1) return std::nullopt;
  if (minor < 13) return by_version(minor);
  return by_own_table(static_cast<const std::uint64_t*>(symbol("_PyRuntime")), minor);
}

}  // namespace lowtide

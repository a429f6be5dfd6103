// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "backends/simulated/cuda_abi.hpp"

namespace lowtide::sim {

/// Every exported driver function, in the order of functions.def.
enum class Function : std::uint16_t {
#define SIM_FUNCTION(exported, base, since, stream) exported,
#include "backends/simulated/functions.def"
#undef SIM_FUNCTION
};

/// Which stream a function means by stream 0.
enum class DefaultStream : std::uint8_t { plain, legacy, per_thread };

struct FunctionInfo {
  const char* exported;
  const char* base;
  int since;  ///< 1000 * major + 10 * minor
  DefaultStream stream;
};

inline constexpr std::array functions{
#define SIM_FUNCTION(exported, base, since, stream) FunctionInfo{#exported, base, since, DefaultStream::stream},
#include "backends/simulated/functions.def"
#undef SIM_FUNCTION
};

constexpr std::size_t index_of(Function function) { return static_cast<std::size_t>(function); }
constexpr const FunctionInfo& info(Function function) { return functions[index_of(function)]; }

/// An exported name means that function, a base name all its variants.
constexpr bool means(std::string_view name, const FunctionInfo& function) {
  return name == function.exported || name == function.base;
}

}  // namespace lowtide::sim

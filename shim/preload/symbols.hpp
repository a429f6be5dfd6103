// SPDX-License-Identifier: Apache-2.0
#pragma once

// The declarations under their ABI names: without this cuda.h renames cuMemAlloc to cuMemAlloc_v2 and the like.
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>

#include <cstddef>
#include <cstdint>

#include "shim/door_table.h"
#include "shim/preload/hip_functions.h"

namespace lowtide::preload {

/// One enumerator per vendor symbol of hooks.def, CUDA's first; the assembly numbers its stubs in the same order.
enum class Symbol : std::uint16_t {
#define HOOK(name, class, typedef) name,
#define HIP(name, class) name,
#include "shim/hooks.def"
  count
};

constexpr std::size_t symbol_count = static_cast<std::size_t>(Symbol::count);

constexpr std::size_t cuda_symbol_count = 0
#define HOOK(name, class, typedef) +1
#include "shim/hooks.def"
    ;

constexpr lowtide_vendor vendor_of(std::size_t index) noexcept {
  return index < cuda_symbol_count ? LOWTIDE_CUDA : LOWTIDE_HIP;
}

/// The type of a vendor symbol, as cuda.h and hip_functions.h declare it.
template <Symbol symbol>
struct Vendor;
#define HIP(name, class)                \
  template <>                           \
  struct Vendor<Symbol::name> {         \
    using Function = decltype(&::name); \
  };
#define HOOK(name, class, typedef) HIP(name, class)
#include "shim/hooks.def"

/// By index: the symbol's name; and for CUDA's, how cuGetProcAddress knows it ("cuMemAlloc_v3020": name, version,
/// stream suffix).
extern const char* const symbol_names[symbol_count];
extern const char* const proc_names[cuda_symbol_count];

/// The index of a name, or symbol_count. For every other name it returns after a few comparisons.
std::size_t find_symbol(const char* name) noexcept;

}  // namespace lowtide::preload

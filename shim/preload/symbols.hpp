// SPDX-License-Identifier: Apache-2.0
#pragma once

// The declarations under their ABI names: without this cuda.h renames cuMemAlloc to cuMemAlloc_v2 and the like.
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>

#include <cstddef>
#include <cstdint>

namespace lowtide::preload {

/// One enumerator per vendor symbol of hooks.def; the assembly numbers its stubs in the same order.
enum class Symbol : std::uint16_t {
#define HOOK(name, class, typedef) name,
#include "shim/hooks.def"
  count
};

constexpr std::size_t symbol_count = static_cast<std::size_t>(Symbol::count);

/// The type of a vendor symbol, as cuda.h declares it.
template <Symbol symbol>
struct Vendor;
#define HOOK(name, class, typedef)          \
  template <>                               \
  struct Vendor<Symbol::name> {             \
    using Function = decltype(&::name);     \
    static constexpr char symbol[] = #name; \
  };
#include "shim/hooks.def"

/// By index: the symbol's name, and how cuGetProcAddress knows it ("cuMemAlloc_v3020": name, version, stream suffix).
extern const char* const symbol_names[symbol_count];
extern const char* const proc_names[symbol_count];

/// The index of a name, or symbol_count. For every other name it returns after a few comparisons.
std::size_t find_symbol(const char* name) noexcept;

}  // namespace lowtide::preload

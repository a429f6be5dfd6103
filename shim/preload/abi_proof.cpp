// SPDX-License-Identifier: Apache-2.0
//
// The proof that every hook has the vendor's signature: hooks and exports take theirs from cuda.h by the ABI name, and
// here the compiler compares that with the type that cuGetProcAddress's users call through.
#include "shim/preload/symbols.hpp"

// After symbols.hpp, which sees to the ABI names.
#include <cudaTypedefs.h>

#include <type_traits>

namespace lowtide::preload {

#define HOOK(name, class, typedef) \
  static_assert(std::is_same_v<Vendor<Symbol::name>::Function, PFN_##typedef>, #name " is not PFN_" #typedef);
#include "shim/hooks.def"

}  // namespace lowtide::preload

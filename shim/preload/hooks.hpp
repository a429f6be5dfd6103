// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "shim/preload/symbols.hpp"

namespace lowtide::preload {

// hook_<name> for every symbol that is managed, is recorded or resolves others, with the vendor's own signature; a
// definition that differs from it does not link. Hooks run after the driver's addresses are known.
#define LOWTIDE_HOOK_RESOLVE(name) decltype(::name) hook_##name;
#define LOWTIDE_HOOK_MANAGE(name) decltype(::name) hook_##name;
#define LOWTIDE_HOOK_RECORD(name) decltype(::name) hook_##name;
#define LOWTIDE_HOOK_GATE(name)
#define LOWTIDE_HOOK_OBSERVE(name)
#define HOOK(name, class, typedef) LOWTIDE_HOOK_##class(name)
#define HIP(name, class) LOWTIDE_HOOK_##class(name)
#include "shim/hooks.def"
#undef LOWTIDE_HOOK_RESOLVE
#undef LOWTIDE_HOOK_MANAGE
#undef LOWTIDE_HOOK_RECORD
#undef LOWTIDE_HOOK_GATE
#undef LOWTIDE_HOOK_OBSERVE

/// What an export runs instead of the driver's function; null where it goes straight there.
const void* hook_address(std::size_t index) noexcept;

}  // namespace lowtide::preload

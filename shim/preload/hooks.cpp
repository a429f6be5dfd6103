// SPDX-License-Identifier: Apache-2.0
#include "shim/preload/hooks.hpp"

#include "shim/preload/door.hpp"
#include "shim/preload/driver.hpp"

namespace lowtide::preload {
namespace {

/// The calling thread's place at the gate of each vendor's door, once it has one.
constinit thread_local lowtide_gate_place* places[LOWTIDE_VENDORS] = {};

/// The gate is open and this is no nested call: the thread is inside. Kept in line, since every launch passes here.
inline bool enter_open_gate(lowtide_gate_place* mine) noexcept {
  if (mine == nullptr || __atomic_load_n(&mine->inside, __ATOMIC_RELAXED) != 0) return false;
  __atomic_store_n(&mine->inside, 1, __ATOMIC_RELAXED);
  __atomic_signal_fence(__ATOMIC_SEQ_CST);
  if (__atomic_load_n(mine->word, __ATOMIC_RELAXED) == 0) return true;
  __atomic_store_n(&mine->inside, 0, __ATOMIC_RELEASE);
  return false;
}

/// The hook of everything that touches device memory: one body for all signatures.
template <Symbol symbol, typename Function = typename Vendor<symbol>::Function>
struct Gated;

template <Symbol symbol, typename Answer, typename... Arguments>
struct Gated<symbol, Answer (*)(Arguments...)> {
  static Answer call(Arguments... arguments) {
    constexpr lowtide_vendor vendor = vendor_of(static_cast<std::size_t>(symbol));
    lowtide_gate_place* const mine = places[vendor];
    if (enter_open_gate(mine)) {
      const Answer result = real<symbol>(arguments...);
      __atomic_store_n(&mine->inside, 0, __ATOMIC_RELEASE);
      return result;
    }
    const auto& state = door(vendor);
    if (const int refused = state.gate_enter(&places[vendor]); refused != 0) return static_cast<Answer>(refused);
    const Answer result = real<symbol>(arguments...);
    state.gate_leave();
    return result;
  }
};

template <typename Function>
const void* address_of(Function* function) noexcept {
  return reinterpret_cast<const void*>(function);
}

}  // namespace

const void* hook_address(std::size_t index) noexcept {
#define LOWTIDE_HOOK_RESOLVE(name) address_of(&hook_##name),
#define LOWTIDE_HOOK_MANAGE(name) address_of(&hook_##name),
#define LOWTIDE_HOOK_RECORD(name) address_of(&hook_##name),
#define LOWTIDE_HOOK_GATE(name) address_of(&Gated<Symbol::name>::call),
#define LOWTIDE_HOOK_OBSERVE(name) nullptr,
  static const void* const hooks[symbol_count] = {
#define HOOK(name, class, typedef) LOWTIDE_HOOK_##class(name)
#define HIP(name, class) LOWTIDE_HOOK_##class(name)
#include "shim/hooks.def"
  };
#undef LOWTIDE_HOOK_RESOLVE
#undef LOWTIDE_HOOK_MANAGE
#undef LOWTIDE_HOOK_RECORD
#undef LOWTIDE_HOOK_GATE
#undef LOWTIDE_HOOK_OBSERVE
  return hooks[index];
}

}  // namespace lowtide::preload

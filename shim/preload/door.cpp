// SPDX-License-Identifier: Apache-2.0
#include "shim/preload/door.hpp"

#include <dlfcn.h>

#include "allocator/base/log.hpp"
#include "shim/preload/driver.hpp"

namespace lowtide::preload {

constinit std::atomic<const lowtide_door_table_v1*> known_doors[LOWTIDE_VENDORS]{};

namespace {

// Whether this thread is opening the door: what liblowtide.so calls meanwhile passes.
constinit thread_local bool opening = false;

constexpr uint32_t nobody_records = 0;

constexpr lowtide_door_table_v1 always_open{
    .struct_size = sizeof(lowtide_door_table_v1),
    .init = [](int*) { return int{LOWTIDE_PASS}; },
    .allocate = [](uint64_t*, size_t, int*) { return int{LOWTIDE_PASS}; },
    .allocate_pitch = [](uint64_t*, size_t*, size_t, size_t, unsigned, int*) { return int{LOWTIDE_PASS}; },
    .free = [](uint64_t, int, void*, int*) { return int{LOWTIDE_PASS}; },
    .find_block = [](uint64_t, lowtide_block_view*) { return 0; },
    .mark_shared = [](uint64_t, const char*) {},
    .gate_enter = [](lowtide_gate_place**) { return 0; },
    .gate_leave = [] {},
    .capture_begin = [] {},
    .capture_began = [](void*, int) {},
    .capture_ended = [](void*) {},
    .context_created = [](void*) {},
    .context_destroying = [](void*) {},
    .primary_context_resetting = [](int) {},
    .primary_context_released = [](int) {},
    .peer_access = [](void*, int) {},
    .recording = &nobody_records,
    .record = [](const lowtide_record*) {},
    .record_release = [](lowtide_record*) { return 0; },
    .refuse_ipc = [](uint64_t) { return 0; },
};

const lowtide_door_table_v1* ask_state(lowtide_vendor vendor) noexcept {
  const RealLoader loader = real_loader();
  void* state = loader.dlopen("liblowtide.so", RTLD_NOW | RTLD_LOCAL);
  void* function = state == nullptr ? nullptr : loader.dlsym(state, LOWTIDE_DOOR_TABLE_NAME);
  if (function == nullptr) {
    const char* reason = loader.dlerror != nullptr ? loader.dlerror() : nullptr;
    log(LogLevel::warning, "this process runs without Lowtide: %s", reason != nullptr ? reason : "unknown reason");
    return nullptr;
  }
  const auto* table = reinterpret_cast<lowtide_door_table_function>(function)(LOWTIDE_BUILD_ID, vendor);
  return table != nullptr && table->struct_size == sizeof(lowtide_door_table_v1) ? table : nullptr;
}

}  // namespace

// Several threads may come here at once. Nobody waits for another, who may need the loader's lock that this one holds;
// the loader opens the library once, and the first answer is everybody's.
const lowtide_door_table_v1& open_door(lowtide_vendor vendor) noexcept {
  if (opening) return always_open;
  opening = true;
  const auto* table = ask_state(vendor);
  opening = false;
  if (table == nullptr) table = &always_open;
  const lowtide_door_table_v1* first = nullptr;
  const bool is_first = known_doors[vendor].compare_exchange_strong(first, table, std::memory_order_acq_rel);
  return is_first ? *table : *first;
}

}  // namespace lowtide::preload

// SPDX-License-Identifier: Apache-2.0
// The door tables: what the preload's hooks ask of the state. Every function is noexcept around a catch-all.
#include "shim/doors.hpp"

#include <cstring>

#include "allocator/base/env.hpp"

namespace lowtide {
namespace {

/// What cudaMallocPitch gives on every device so far, and a multiple of what hipMallocPitch gives; a multiple of every
/// texture's alignment.
constexpr std::size_t pitch_unit = 512;

int native_of(const Error& error) noexcept {
  if (error.native() != 0) return error.native();
  switch (error.code()) {
    case Code::device_memory:
    case Code::host_budget: return out_of_memory;
    case Code::invalid: return invalid_value;
    default: return unknown;
  }
}

/// Runs the body of a door; an exception becomes what the driver says when memory is short.
template <class Body>
int verdict(int* result, Body body) noexcept {
  const Uncancelled uncancelled;
  try {
    return body();
  } catch (const std::bad_alloc&) {
    *result = out_of_memory;
  } catch (...) {
    *result = unknown;
  }
  return LOWTIDE_DONE;
}

int init(int* result) noexcept {
  const auto& error = process().configuration_error();
  if (!error || !env_flag("LOWTIDE_REQUIRE")) return LOWTIDE_PASS;
  log(LogLevel::error, "LOWTIDE_REQUIRE is set and the configuration cannot be used: %s", error->message());
  *result = not_initialised;
  return LOWTIDE_DONE;
}

template <lowtide_vendor vendor>
int allocate(std::uint64_t* address, std::size_t bytes, int* result) noexcept {
  return verdict(result, [&]() -> int {
    Runtime* runtime = process().start(vendor);
    if (runtime == nullptr || address == nullptr || bytes == 0) return LOWTIDE_PASS;
    if constexpr (vendor == LOWTIDE_HIP) hip_doors::note_device(*runtime);
    const auto tagged = process().tag_for_thread(*runtime, Process::Door::driver, Bytes{bytes});
    if (!tagged) return LOWTIDE_PASS;
    const auto here = process().platform().current();
    if (!here) return LOWTIDE_PASS;  // the driver knows what to answer
    const auto backend = process().use(*runtime, here->device, here->context);
    if (!backend) return LOWTIDE_PASS;  // said once by whoever found out
    const auto block = process().place(*runtime, **backend, *tagged, here->context, Bytes{bytes});
    *result = block ? success : native_of(block.error());
    if (block) *address = block->value;
    return LOWTIDE_DONE;
  });
}

template <lowtide_vendor vendor>
int allocate_pitch(std::uint64_t* address, std::size_t* pitch, std::size_t width, std::size_t height, unsigned element,
                   int* result) noexcept {
  const bool element_is_valid = element == 4 || element == 8 || element == 16;
  if (pitch == nullptr || width == 0 || height == 0 || !element_is_valid) return LOWTIDE_PASS;
  std::size_t row = 0;
  std::size_t bytes = 0;
  if (__builtin_add_overflow(width, pitch_unit - 1, &row)) return LOWTIDE_PASS;
  row = row / pitch_unit * pitch_unit;
  if (__builtin_mul_overflow(row, height, &bytes)) return LOWTIDE_PASS;
  const int who = allocate<vendor>(address, bytes, result);
  if (who == LOWTIDE_DONE && *result == success) *pitch = row;
  return who;
}

template <lowtide_vendor vendor>
int free_block(std::uint64_t address, int /*stream_ordered*/, void* /*stream*/, int* result) noexcept {
  return verdict(result, [&]() -> int {
    *result = success;
    Runtime* runtime = process().runtime(vendor);
    if (runtime == nullptr) {
      // Once exit began the driver may be gone, and with it the memory. Ours must still not reach the driver's own
      // free.
      return process().exiting() && process().was_managed(address) ? LOWTIDE_DONE : LOWTIDE_PASS;
    }
    // A stream-ordered free also waits for everything: later than asked for, never earlier.
    const auto freed = process().free_block(*runtime, {address});
    if (!freed) {
      *result = native_of(freed.error());
      return LOWTIDE_DONE;
    }
    return *freed == BlockTable::Freed::foreign ? LOWTIDE_PASS : LOWTIDE_DONE;
  });
}

template <lowtide_vendor vendor>
int find_block(std::uint64_t address, lowtide_block_view* view) noexcept {
  Runtime* runtime = process().runtime(vendor);
  if (runtime == nullptr) return 0;
  const auto block = runtime->blocks().find({address});
  if (!block) return 0;
  *view = {block->range.start.value, block->range.size.value, block->context.value, index_of(block->device),
           block->resident ? 1 : 0,  block->alone ? 1 : 0,    block->plain ? 1 : 0};
  return 1;
}

template <lowtide_vendor vendor>
void mark_shared(std::uint64_t address, const char* how) noexcept {
  if (Runtime* runtime = process().runtime(vendor)) runtime->blocks().mark_shared({address}, how);
}

// The doors see a visitor as a place at the gate.
static_assert(std::is_standard_layout_v<GateVisitor> && std::atomic<std::uint32_t>::is_always_lock_free);
static_assert(offsetof(GateVisitor, inside) == offsetof(lowtide_gate_place, inside));
static_assert(offsetof(GateVisitor, word) == offsetof(lowtide_gate_place, word));

template <lowtide_vendor vendor>
int gate_enter(lowtide_gate_place** mine) noexcept {
  Runtime* runtime = process().start(vendor);
  if (runtime == nullptr) return 0;
  ThreadState* thread = process().thread();
  GateVisitor* visitor = thread == nullptr ? nullptr : thread->visitor;
  if (visitor != nullptr) {
    thread->at_hand = reinterpret_cast<GateVisitor**>(mine);
    *thread->at_hand = visitor;
  }
  return runtime->gate().enter(visitor) ? 0 : out_of_memory;
}

template <lowtide_vendor vendor>
void gate_leave() noexcept {
  Runtime* runtime = process().runtime(vendor);
  if (runtime == nullptr) return;
  const ThreadState* thread = this_thread;
  runtime->gate().leave(thread == nullptr ? nullptr : thread->visitor);
}

template <lowtide_vendor vendor>
void capture_begin() noexcept {
  if (Runtime* runtime = process().start(vendor)) {
    runtime->gate().wait_until_open();
    runtime->captures().begin();
  }
}

template <lowtide_vendor vendor>
void capture_began(void* stream, int result) noexcept {
  Runtime* runtime = process().runtime(vendor);
  if (runtime == nullptr) return;
  // A stream is captured in its own context.
  const auto here = process().platform().current();
  runtime->captures().began(stream, result == success, here ? here->context : ContextId{});
}

template <lowtide_vendor vendor>
void capture_ended(void* stream) noexcept {
  if (Runtime* runtime = process().runtime(vendor)) guarded([&] { runtime->capture_ended(stream); });
}

template <lowtide_vendor vendor>
int refuse_ipc(std::uint64_t address) noexcept {
  if (!process().first_refusal_of_ipc()) return invalid_value;
  log(LogLevel::warning,
      "%sIpcGetMemHandle of 0x%llx answers invalid argument: memory that can be paused has no legacy IPC handle. "
      "Allocate what is shared outside of a tag",
      vendor == LOWTIDE_CUDA ? "cu" : "hip", static_cast<unsigned long long>(address));
  return invalid_value;
}

/// The vendor's doors, but for contexts and peers.
template <lowtide_vendor vendor>
constexpr lowtide_door_table_v1 common_doors() {
  return {
      .struct_size = sizeof(lowtide_door_table_v1),
      .init = &init,
      .allocate = &allocate<vendor>,
      .allocate_pitch = &allocate_pitch<vendor>,
      .free = &free_block<vendor>,
      .find_block = &find_block<vendor>,
      .mark_shared = &mark_shared<vendor>,
      .gate_enter = &gate_enter<vendor>,
      .gate_leave = &gate_leave<vendor>,
      .capture_begin = &capture_begin<vendor>,
      .capture_began = &capture_began<vendor>,
      .capture_ended = &capture_ended<vendor>,
      .recording = &recording,
      .record = &recording_doors::record<vendor>,
      .record_release = &recording_doors::record_release<vendor>,
      .refuse_ipc = &refuse_ipc<vendor>,
  };
}

constexpr lowtide_door_table_v1 cuda_table = [] {
  auto table = common_doors<LOWTIDE_CUDA>();
  table.context_created = &cuda_doors::context_created;
  table.context_destroying = &cuda_doors::context_destroying;
  table.primary_context_resetting = &cuda_doors::primary_context_resetting;
  table.primary_context_released = &cuda_doors::primary_context_released;
  table.peer_access = &cuda_doors::peer_access;
  return table;
}();

constexpr lowtide_door_table_v1 hip_table = [] {
  auto table = common_doors<LOWTIDE_HIP>();
  table.primary_context_resetting = &hip_doors::primary_context_resetting;
  table.peer_access = &hip_doors::peer_access;
  return table;
}();

}  // namespace
}  // namespace lowtide

extern "C" __attribute__((visibility("default"))) const lowtide_door_table_v1* lowtide_door_table_v1_get(
    const char* build_id, lowtide_vendor vendor) {
  using namespace lowtide;
  if (env_flag("LOWTIDE_DISABLE")) return nullptr;
  if (build_id == nullptr || std::strcmp(build_id, LOWTIDE_BUILD_ID) != 0) {
    log(LogLevel::warning, "liblowtide_preload.so (%s) and liblowtide.so (%s) are of different builds: switched off",
        build_id == nullptr ? "none" : build_id, LOWTIDE_BUILD_ID);
    return nullptr;
  }
  return vendor == LOWTIDE_CUDA ? &cuda_table : &hip_table;
}

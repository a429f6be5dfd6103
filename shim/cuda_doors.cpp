// SPDX-License-Identifier: Apache-2.0
// The door table for CUDA: what the preload's hooks ask of the state. Every function is noexcept around a catch-all.
#include <cstring>

#include "allocator/base/env.hpp"
#include "allocator/base/log.hpp"
#include "allocator/core/uncancelled.hpp"
#include "shim/door_table.h"
#include "shim/process.hpp"

namespace lowtide {
namespace {

/// What cudaMallocPitch gives on every device so far; a multiple of every texture's alignment.
constexpr std::size_t pitch_unit = 512;

int native_of(const Error& error) noexcept {
  if (error.native() != 0) return error.native();
  switch (error.code()) {
    case Code::device_memory:
    case Code::host_budget: return CUDA_ERROR_OUT_OF_MEMORY;
    case Code::invalid: return CUDA_ERROR_INVALID_VALUE;
    default: return CUDA_ERROR_UNKNOWN;
  }
}

/// Runs the body of a door; an exception becomes what the driver says when memory is short.
template <class Body>
int verdict(int* result, Body body) noexcept {
  const Uncancelled uncancelled;
  try {
    return body();
  } catch (const std::bad_alloc&) {
    *result = CUDA_ERROR_OUT_OF_MEMORY;
  } catch (...) {
    *result = CUDA_ERROR_UNKNOWN;
  }
  return LOWTIDE_DONE;
}

/// For doors without an answer.
template <class Body>
void guarded(Body body) noexcept {
  const Uncancelled uncancelled;
  try {
    body();
  } catch (...) {
    log(LogLevel::warning, "the host has no memory for Lowtide's bookkeeping");
  }
}

int init(int* result) noexcept {
  const auto& error = process().configuration_error();
  if (!error || !env_flag("LOWTIDE_REQUIRE")) return LOWTIDE_PASS;
  log(LogLevel::error, "LOWTIDE_REQUIRE is set and the configuration cannot be used: %s", error->message());
  *result = CUDA_ERROR_NOT_INITIALIZED;
  return LOWTIDE_DONE;
}

int allocate(std::uint64_t* address, std::size_t bytes, int* result) noexcept {
  return verdict(result, [&]() -> int {
    Runtime* runtime = process().start();
    if (runtime == nullptr || address == nullptr || bytes == 0) return LOWTIDE_PASS;
    const auto tagged = process().tag_for_thread(*runtime, Process::Door::driver, Bytes{bytes});
    if (!tagged) return LOWTIDE_PASS;
    const auto& driver = process().driver();
    CUcontext context = nullptr;
    CUdevice device = 0;
    if (driver.cuCtxGetCurrent(&context) != CUDA_SUCCESS || context == nullptr ||
        driver.cuCtxGetDevice(&device) != CUDA_SUCCESS) {
      return LOWTIDE_PASS;  // the driver knows what to answer
    }
    const auto backend = process().use(*runtime, device, context);
    if (!backend) return LOWTIDE_PASS;  // said once by whoever found out
    const auto block = process().place(*runtime, **backend, *tagged, id_of(context), Bytes{bytes});
    *result = block ? CUDA_SUCCESS : native_of(block.error());
    if (block) *address = block->value;
    return LOWTIDE_DONE;
  });
}

int allocate_pitch(std::uint64_t* address, std::size_t* pitch, std::size_t width, std::size_t height, unsigned element,
                   int* result) noexcept {
  const bool element_is_valid = element == 4 || element == 8 || element == 16;
  if (pitch == nullptr || width == 0 || height == 0 || !element_is_valid) return LOWTIDE_PASS;
  std::size_t row = 0;
  std::size_t bytes = 0;
  if (__builtin_add_overflow(width, pitch_unit - 1, &row)) return LOWTIDE_PASS;
  row = row / pitch_unit * pitch_unit;
  if (__builtin_mul_overflow(row, height, &bytes)) return LOWTIDE_PASS;
  const int who = allocate(address, bytes, result);
  if (who == LOWTIDE_DONE && *result == CUDA_SUCCESS) *pitch = row;
  return who;
}

int free_block(std::uint64_t address, int /*stream_ordered*/, void* /*stream*/, int* result) noexcept {
  return verdict(result, [&]() -> int {
    *result = CUDA_SUCCESS;
    Runtime* runtime = process().runtime();
    if (runtime == nullptr) {
      // Once exit began the driver may be gone, and with it the memory. Ours must still not reach the driver's own
      // free.
      return process().exiting() && process().was_managed(address) ? LOWTIDE_DONE : LOWTIDE_PASS;
    }
    // A stream-ordered free also waits for everything: later than asked for, never earlier.
    const auto freed = runtime->free({address});
    if (!freed) {
      *result = native_of(freed.error());
      return LOWTIDE_DONE;
    }
    return *freed == BlockTable::Freed::foreign ? LOWTIDE_PASS : LOWTIDE_DONE;
  });
}

int find_block(std::uint64_t address, lowtide_block_view* view) noexcept {
  Runtime* runtime = process().runtime();
  if (runtime == nullptr) return 0;
  const auto block = runtime->blocks().find({address});
  if (!block) return 0;
  *view = {block->range.start.value, block->range.size.value, block->context.value,
           index_of(block->device),  block->resident ? 1 : 0, block->alone ? 1 : 0};
  return 1;
}

void mark_shared(std::uint64_t address, const char* how) noexcept {
  if (Runtime* runtime = process().runtime()) runtime->blocks().mark_shared({address}, how);
}

// The doors see a visitor as a place at the gate.
static_assert(std::is_standard_layout_v<GateVisitor> && std::atomic<std::uint32_t>::is_always_lock_free);
static_assert(offsetof(GateVisitor, inside) == offsetof(lowtide_gate_place, inside));
static_assert(offsetof(GateVisitor, word) == offsetof(lowtide_gate_place, word));

int gate_enter(lowtide_gate_place** mine) noexcept {
  Runtime* runtime = process().start();
  if (runtime == nullptr) return 0;
  ThreadState* thread = process().thread();
  GateVisitor* visitor = thread == nullptr ? nullptr : thread->visitor;
  if (visitor != nullptr) {
    thread->at_hand = reinterpret_cast<GateVisitor**>(mine);
    *thread->at_hand = visitor;
  }
  return runtime->gate().enter(visitor) ? 0 : CUDA_ERROR_OUT_OF_MEMORY;
}

void gate_leave() noexcept {
  Runtime* runtime = process().runtime();
  if (runtime == nullptr) return;
  const ThreadState* thread = this_thread;
  runtime->gate().leave(thread == nullptr ? nullptr : thread->visitor);
}

void capture_begin() noexcept {
  if (Runtime* runtime = process().start()) {
    runtime->gate().wait_until_open();
    runtime->captures().begin();
  }
}

void capture_began(void* stream, int result) noexcept {
  Runtime* runtime = process().runtime();
  if (runtime == nullptr) return;
  CUcontext context = nullptr;  // a stream is captured in its own context
  (void)process().driver().cuCtxGetCurrent(&context);
  runtime->captures().began(stream, result == CUDA_SUCCESS, id_of(context));
}

void capture_ended(void* stream) noexcept {
  if (Runtime* runtime = process().runtime()) guarded([&] { runtime->capture_ended(stream); });
}

std::optional<DeviceId> device_of(CUcontext context) noexcept {
  const auto& driver = process().driver();
  const cuda::ContextGuard guard(driver, context);
  CUdevice device = 0;
  if (guard.result() != CUDA_SUCCESS || driver.cuCtxGetDevice(&device) != CUDA_SUCCESS) return std::nullopt;
  return DeviceId{device};
}

/// The handle of the device's primary context; null if it is not active.
CUcontext primary_context(int device) noexcept {
  const auto& driver = process().driver();
  unsigned flags = 0;
  int active = 0;
  CUcontext context = nullptr;
  if (driver.cuDevicePrimaryCtxGetState(device, &flags, &active) != CUDA_SUCCESS || active == 0) return nullptr;
  if (driver.cuDevicePrimaryCtxRetain(&context, device) != CUDA_SUCCESS) return nullptr;
  (void)driver.cuDevicePrimaryCtxRelease_v2(device);
  return context;
}

void context_created(void* context) noexcept {
  Runtime* runtime = process().start();
  if (runtime == nullptr) return;
  guarded([&] {
    const auto device = device_of(static_cast<CUcontext>(context));
    if (device) runtime->note_context(*device, id_of(context), primary_context(index_of(*device)) == context);
  });
  process().serve();
}

void context_destroying(void* context) noexcept {
  Runtime* runtime = process().runtime();
  if (runtime == nullptr) return;
  guarded([&] {
    const auto device = device_of(static_cast<CUcontext>(context));
    // A primary context lives until its last release: the driver refuses to destroy it.
    if (device && primary_context(index_of(*device)) == context) return;
    runtime->drop_context(id_of(context), true);
  });
}

void primary_context_resetting(int device) noexcept {
  Runtime* runtime = process().runtime();
  if (runtime == nullptr) return;
  if (CUcontext context = primary_context(device)) guarded([&] { runtime->drop_context(id_of(context), true); });
}

void primary_context_released(int device) noexcept {
  Runtime* runtime = process().runtime();
  if (runtime == nullptr || primary_context(device) != nullptr) return;
  guarded([&] { runtime->drop_primary_context(DeviceId{device}); });
}

void peer_access(void* peer_context, int enabled) noexcept {
  Runtime* runtime = process().runtime();
  if (runtime == nullptr) return;
  guarded([&] {
    CUdevice accessor = 0;
    const auto owner = device_of(static_cast<CUcontext>(peer_context));
    if (!owner || process().driver().cuCtxGetDevice(&accessor) != CUDA_SUCCESS) return;
    if (auto status = runtime->set_peer(*owner, DeviceId{accessor}, enabled != 0); !status) {
      log(LogLevel::warning, "device %d was not given access to device %d: %s", accessor, index_of(*owner),
          status.error().message());
    }
  });
}

int refuse_ipc(std::uint64_t address) noexcept {
  if (!process().first_refusal_of_ipc()) return CUDA_ERROR_INVALID_VALUE;
  log(LogLevel::warning,
      "cuIpcGetMemHandle of 0x%llx answers invalid argument: memory that can be paused has no legacy IPC handle. "
      "Allocate "
      "what is shared outside of a tag",
      static_cast<unsigned long long>(address));
  return CUDA_ERROR_INVALID_VALUE;
}

constexpr lowtide_door_table_v1 table{
    .struct_size = sizeof(lowtide_door_table_v1),
    .init = &init,
    .allocate = &allocate,
    .allocate_pitch = &allocate_pitch,
    .free = &free_block,
    .find_block = &find_block,
    .mark_shared = &mark_shared,
    .gate_enter = &gate_enter,
    .gate_leave = &gate_leave,
    .capture_begin = &capture_begin,
    .capture_began = &capture_began,
    .capture_ended = &capture_ended,
    .context_created = &context_created,
    .context_destroying = &context_destroying,
    .primary_context_resetting = &primary_context_resetting,
    .primary_context_released = &primary_context_released,
    .peer_access = &peer_access,
    .refuse_ipc = &refuse_ipc,
};

}  // namespace
}  // namespace lowtide

extern "C" __attribute__((visibility("default"))) const lowtide_door_table_v1* lowtide_door_table_v1_get(
    const char* build_id) {
  using namespace lowtide;
  if (env_flag("LOWTIDE_DISABLE")) return nullptr;
  if (build_id == nullptr || std::strcmp(build_id, LOWTIDE_BUILD_ID) != 0) {
    log(LogLevel::warning, "liblowtide_preload.so (%s) and liblowtide.so (%s) are of different builds: switched off",
        build_id == nullptr ? "none" : build_id, LOWTIDE_BUILD_ID);
    return nullptr;
  }
  return &table;
}

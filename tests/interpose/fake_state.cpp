// SPDX-License-Identifier: Apache-2.0
//
// A stand-in for liblowtide.so: a door table that counts its calls.
#include "tests/interpose/fake_state.hpp"

#include <atomic>
#include <cstring>

#include "allocator/trace/event.hpp"
#include "shim/door_table.h"
#include "tests/interpose/cuda_abi.hpp"

using namespace lowtide::test;

namespace {

struct Count {
  std::atomic<const char*> entry;
  std::atomic<int> calls;
  std::atomic<std::uint64_t> last;
};

Count counts[64];
std::atomic<int> gate_answer{0};
std::atomic<int> resident{1};
std::uint32_t recording = 1;
void (*allocating)() = nullptr;

Count& count_of(const char* entry) {
  for (Count& count : counts) {
    const char* expected = nullptr;
    if (count.entry.compare_exchange_strong(expected, entry) || std::strcmp(expected, entry) == 0) return count;
  }
  return counts[0];
}

void called(const char* entry, std::uint64_t value = 0) {
  Count& count = count_of(entry);
  count.last.store(value);
  count.calls.fetch_add(1);
}

void called_with(const char* entry, const void* pointer) { called(entry, reinterpret_cast<std::uint64_t>(pointer)); }

bool is_ours(std::uint64_t address) { return address >= block_address && address < block_address + block_size; }

int init(int*) {
  called("init");
  return LOWTIDE_PASS;
}

int allocate(std::uint64_t* address, std::size_t bytes, int* result) {
  called("allocate", bytes);
  if (allocating != nullptr) allocating();
  if (bytes != managed_size) return LOWTIDE_PASS;
  *address = managed_address;
  *result = CUDA_SUCCESS;
  return LOWTIDE_DONE;
}

int allocate_pitch(std::uint64_t* address, std::size_t* pitch, std::size_t width, std::size_t height, unsigned,
                   int* result) {
  called("allocate_pitch", width);
  if (height != managed_size) return LOWTIDE_PASS;
  *address = managed_address;
  *pitch = 512;
  *result = CUDA_SUCCESS;
  return LOWTIDE_DONE;
}

int free_block(std::uint64_t address, int stream_ordered, void* stream, int* result) {
  called("free", address);
  if (stream_ordered != 0) called_with("free_stream", stream);
  if (address != managed_address) return LOWTIDE_PASS;
  *result = CUDA_SUCCESS;
  return LOWTIDE_DONE;
}

int find_block(std::uint64_t address, lowtide_block_view* view) {
  called("find_block", address);
  if (!is_ours(address)) return 0;
  *view = {block_address, block_size, block_context, block_device, resident.load(), 1};
  return 1;
}

void record(const lowtide_record* record) {
  constexpr const char* names[] = {"record_other", "record_alloc", "record_out_of_memory", "record_map"};
  using lowtide::trace::Op;
  const auto op = static_cast<Op>(record->op);
  const int name = op == Op::alloc ? 1 : op == Op::out_of_memory ? 2 : op == Op::map ? 3 : 0;
  called(names[name], record->bytes);
}

int record_release(lowtide_record* record) {
  called("record_release", record->address);
  if (record->address == unknown_to_state) return 0;
  record->op = static_cast<std::uint8_t>(lowtide::trace::Op::alloc);
  record->bytes = released_size;
  return 1;
}

const lowtide_door_table_v1 table{
    .struct_size = sizeof(lowtide_door_table_v1),
    .init = &init,
    .allocate = &allocate,
    .allocate_pitch = &allocate_pitch,
    .free = &free_block,
    .find_block = &find_block,
    .mark_shared = [](std::uint64_t address, const char* how) { called(how, address); },
    .gate_enter =
        [](lowtide_gate_place**) {
          called("gate_enter");
          return gate_answer.load();
        },
    .gate_leave = [] { called("gate_leave"); },
    .capture_begin = [] { called("capture_begin"); },
    .capture_began = [](void* stream, int) { called_with("capture_began", stream); },
    .capture_ended = [](void* stream) { called_with("capture_ended", stream); },
    .context_created = [](void* context) { called_with("context_created", context); },
    .context_destroying = [](void* context) { called_with("context_destroying", context); },
    .primary_context_resetting = [](int device) { called("primary_context_resetting", std::uint64_t(device)); },
    .primary_context_released = [](int device) { called("primary_context_released", std::uint64_t(device)); },
    .peer_access = [](void*, int enabled) { called("peer_access", std::uint64_t(enabled)); },
    .recording = &recording,
    .record = &record,
    .record_release = &record_release,
    .refuse_ipc =
        [](std::uint64_t address) {
          called("refuse_ipc", address);
          return int{CUDA_ERROR_NOT_SUPPORTED};
        },
};

}  // namespace

#define FAKE_STATE_API extern "C" __attribute__((visibility("default")))

FAKE_STATE_API int fake_state_calls(const char* entry) { return count_of(entry).calls.load(); }
FAKE_STATE_API std::uint64_t fake_state_last(const char* entry) { return count_of(entry).last.load(); }
FAKE_STATE_API void fake_state_set_resident(int value) { resident.store(value); }
FAKE_STATE_API void fake_state_set_allocating(void (*does)()) { allocating = does; }
FAKE_STATE_API void fake_state_set_recording(int value) { __atomic_store_n(&recording, value, __ATOMIC_RELAXED); }
FAKE_STATE_API void fake_state_set_gate(int answer) { gate_answer.store(answer); }

// Calls a hooked export while the door is being opened, which liblowtide.so itself never does.
FAKE_STATE_API const lowtide_door_table_v1* lowtide_door_table_v1_get(const char* build_id, lowtide_vendor vendor) {
  called("get", vendor);
  if (std::strcmp(build_id, FAKE_STATE_BUILD_ID) != 0) return nullptr;
  using Allocate = decltype(&::cuMemAlloc_v2);
  CUdeviceptr pointer = 0;
  const auto hooked = reinterpret_cast<Allocate>(::dlsym(RTLD_DEFAULT, "cuMemAlloc_v2"));
  if (hooked != nullptr) hooked(&pointer, managed_size);
  return &table;
}

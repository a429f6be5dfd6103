/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the two libraries meet. liblowtide_preload.so (the doors) calls liblowtide.so (the state) only through this
 * table of C functions, so that no C++ type crosses and a stale copy of either is noticed: on a build mismatch the
 * table is refused, and the doors pass every call through.
 *
 * Every function is noexcept, thread-safe, and cheap when it has nothing to do. Vendor results cross as int.
 */
#ifndef LOWTIDE_SHIM_DOOR_TABLE_H
#define LOWTIDE_SHIM_DOOR_TABLE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Who answers a call: the vendor's own function (the hook calls it with the same arguments), or Lowtide (the hook
 * returns the result it was given). */
enum lowtide_verdict { LOWTIDE_PASS = 0, LOWTIDE_DONE = 1 };

/* Whose doors a table serves. A process has blocks of one vendor, that of its first GPU call; the other's table lets
 * everything pass. */
typedef enum lowtide_vendor { LOWTIDE_CUDA = 0, LOWTIDE_HIP = 1 } lowtide_vendor;
#define LOWTIDE_VENDORS 2

typedef struct lowtide_block_view {
  uint64_t address;
  uint64_t size; /* as requested */
  uint64_t context;
  int device;
  int resident; /* 0 while parked */
  int alone;    /* 0 if other blocks have parts of its physical memory */
  int plain;    /* 1 if its memory is an allocation of the vendor's own */
} lowtide_block_view;

/* A thread's place at the gate. While `inside` is 0 and `*word` is 0 a gated call needs no function of the table: the
 * thread sets `inside` to 1, looks at `*word`, and when it is still 0 makes the call and sets `inside` to 0 afterwards.
 * allocator/core/gate.hpp says why this needs no fence. */
typedef struct lowtide_gate_place {
  uint32_t inside;
  const uint32_t* word;
} lowtide_gate_place;

/* What passed a door without Lowtide. `op` and `kind` are numbers of allocator/trace/event.hpp, and the other members
 * mean what stands there; `kind` also says which addresses can be the same: those of memory, of handles, of arrays. */
typedef struct lowtide_record {
  uint8_t op;
  uint8_t kind;
  int16_t device; /* -1: that of the calling thread */
  uint64_t address;
  uint64_t bytes;
  uint64_t value;
} lowtide_record;

typedef struct lowtide_door_table_v1 {
  size_t struct_size;

  /* The first calls of a process: cuInit, hipInit, hipGetDeviceCount. What the configuration says of a broken start
   * (LOWTIDE_REQUIRE): PASS, or DONE with the result. */
  int (*init)(int* result);

  /* cuMemAlloc_v2, hipMalloc and their pitched forms. PASS without a tag for the calling thread, without a context, for
   * size 0. */
  int (*allocate)(uint64_t* address, size_t bytes, int* result);
  int (*allocate_pitch)(uint64_t* address, size_t* pitch, size_t width, size_t height, unsigned element, int* result);
  /* Any free. `stream_ordered` is 1 for cuMemFreeAsync and its kind, with its stream. PASS for addresses that are not
   * ours. */
  int (*free)(uint64_t address, int stream_ordered, void* stream, int* result);
  /* The block that contains `address`: 1 and *view, or 0. */
  int (*find_block)(uint64_t address, lowtide_block_view* view);
  /* The memory of the block at `address` went to someone else (`how`: the function's name): it cannot be paused any
   * more. */
  void (*mark_shared)(uint64_t address, const char* how);

  /* Around every call that can touch device memory (launch, copy, memset). enter returns 0: go on and call leave
   * afterwards; it waits while the gate is closed. Anything else is the result to answer, without leave. `*mine`, a
   * variable of the calling thread, is set to its place, and to NULL again when the thread has none any more. */
  int (*gate_enter)(lowtide_gate_place** mine);
  void (*gate_leave)(void);

  /* Around the begin of a stream capture: `begin` waits while a transition runs; `began` is called with the vendor's
   * result. `ended`: the capture on `stream` is over, whatever its end call answered, unless the stream was not
   * capturing. */
  void (*capture_begin)(void);
  void (*capture_began)(void* stream, int result);
  void (*capture_ended)(void* stream);

  /* Contexts, of which HIP has one for each device, and calls only for its reset: the others are NULL. After one was
   * created or retained; before one is destroyed or its device's primary context is reset; after a release of a primary
   * context (Lowtide looks whether it is still active). */
  void (*context_created)(void* context);
  void (*context_destroying)(void* context);
  void (*primary_context_resetting)(int device);
  void (*primary_context_released)(int device);

  /* After the current context was given (1) or denied (0) access to the memory of `peer_context`'s device, for HIP of
   * the device with that number. */
  void (*peer_access)(void* peer_context, int enabled);

  /* While this is 0 nobody wants to know what passes the doors, and the two below need not be called. */
  const uint32_t* recording;
  /* After the vendor's own function gave memory, had none, or did what else `op` says. */
  void (*record)(const lowtide_record* record);
  /* Before the vendor's own function takes memory back, since its address may be somebody else's as soon as it is. 1,
   * and *record is what was known of it: to be recorded as given once more if the vendor's function fails. */
  int (*record_release)(lowtide_record* record);

  /* Says once, in one line, why a legacy IPC handle of our memory cannot be had; the result to answer. */
  int (*refuse_ipc)(uint64_t address);
} lowtide_door_table_v1;

/* Exported by liblowtide.so. NULL if `build_id` is not that of this library, or if this process is not to be touched
 * (LOWTIDE_DISABLE=1, a bad configuration in a bare preload, another copy of the state came first). */
typedef const lowtide_door_table_v1* (*lowtide_door_table_function)(const char* build_id, lowtide_vendor vendor);
#define LOWTIDE_DOOR_TABLE_NAME "lowtide_door_table_v1_get"

#ifdef __cplusplus
}
#endif
#endif

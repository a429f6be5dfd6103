// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/log.hpp"
#include "allocator/core/uncancelled.hpp"
#include "shim/door_table.h"
#include "shim/process.hpp"

namespace lowtide {

/// The results that doors answer themselves, by the numbers that both vendors give them.
inline constexpr int success = 0;
inline constexpr int invalid_value = 1;
inline constexpr int out_of_memory = 2;
inline constexpr int not_initialised = 3;
inline constexpr int unknown = 999;

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

/// What differs between the vendors of a door table: contexts and peers, each in a file of its own. HIP has no contexts
/// to speak of, and leaves their functions null.
namespace cuda_doors {
void context_created(void* context) noexcept;
void context_destroying(void* context) noexcept;
void primary_context_resetting(int device) noexcept;
void primary_context_released(int device) noexcept;
void peer_access(void* peer_context, int enabled) noexcept;
}  // namespace cuda_doors

/// What the vendor's own functions did, while somebody records.
namespace recording_doors {
template <lowtide_vendor vendor>
void record(const lowtide_record* record) noexcept;
template <lowtide_vendor vendor>
int record_release(lowtide_record* record) noexcept;
}  // namespace recording_doors

namespace hip_doors {
/// The calling thread is about to ask for memory.
void note_device(Runtime& runtime) noexcept;
void primary_context_resetting(int device) noexcept;
void peer_access(void* peer_device, int enabled) noexcept;
}  // namespace hip_doors

}  // namespace lowtide

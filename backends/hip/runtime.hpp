// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/result.hpp"
#include "allocator/core/types.hpp"
#include "backends/hip/hip_declarations.h"

namespace lowtide::hip {

/// The functions of AMD's runtime, looked up at run time; nothing of it is linked.
struct Runtime {
#define RUNTIME(name) decltype(&::name) name = nullptr;
#include "backends/hip/runtime.def"
#undef RUNTIME

  /// A failed call as an error: Code::device_memory for out of memory, Code::driver otherwise.
  Error error(hipError_t result, const char* call, const char* detail = "") const noexcept;
  /// `result` as a status. A runtime that is shutting down is success: it has given everything back already.
  Status status(hipError_t result, const char* call, const char* detail = "") const noexcept;
};

/// Fills the table by `resolve`, which must not go through interposed symbols. Code::unsupported names what is missing.
Result<Runtime> load_runtime(void* (*resolve)(void* library, const char* name), void* library) noexcept;

/// HIP has one context for each device: its number, counted from 1.
constexpr ContextId context_of(DeviceId device) noexcept { return {static_cast<std::uintptr_t>(index_of(device)) + 1}; }

/// Makes a device the calling thread's, and lets the thread use the runtime although streams are being captured, while
/// it lives.
class DeviceGuard {
 public:
  DeviceGuard(const Runtime& runtime, DeviceId device) noexcept;
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;
  ~DeviceGuard();
  /// Why the device could not be made the thread's.
  hipError_t result() const noexcept { return result_; }

 private:
  const Runtime& runtime_;
  hipStreamCaptureMode mode_ = hipStreamCaptureModeRelaxed;
  int before_ = 0;
  bool changed_ = false;
  hipError_t result_ = hipSuccess;
};

}  // namespace lowtide::hip

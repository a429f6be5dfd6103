// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "allocator/base/result.hpp"
#include "allocator/core/backend.hpp"
#include "backends/hip/hip_declarations.h"

namespace lowtide::hip {

/// The real runtime's functions, looked up at run time; nothing of the vendor is linked.
struct Runtime {
#define RUNTIME(name) decltype(&::name) name = nullptr;
#include "backends/hip/runtime.def"
#undef RUNTIME

  const char* name_of(hipError_t result) const noexcept;
  /// A failed call as an error: Code::device_memory for out of memory, Code::driver otherwise.
  Error error(hipError_t result, const char* call, const char* detail = "") const noexcept;
  /// `result` as a status. hipErrorDeinitialized is success: the runtime has given everything back already.
  Status status(hipError_t result, const char* call, const char* detail = "") const noexcept;
};

/// Fills the table by `resolve`, which must not go through interposed symbols. Code::unsupported names what is missing.
Result<Runtime> load_runtime(void* (*resolve)(void* library, const char* name), void* library) noexcept;

/// Makes a device current, and lets the calling thread use the runtime although streams are being captured, while it
/// lives.
class DeviceGuard {
 public:
  DeviceGuard(const Runtime& runtime, int device) noexcept;
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;
  ~DeviceGuard();

 private:
  const Runtime& runtime_;
  hipStreamCaptureMode mode_ = hipStreamCaptureModeRelaxed;
  int previous_ = -1;
};

Result<std::unique_ptr<Backend>> probe(const Runtime& runtime, DeviceId device);

}  // namespace lowtide::hip

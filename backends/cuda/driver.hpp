// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda.h>

#include "allocator/base/result.hpp"

namespace lowtide::cuda {

/// The real driver's functions, looked up at run time; nothing of the driver is linked.
struct Driver {
#define DRIVER(name) decltype(&::name) name = nullptr;
#include "backends/cuda/driver.def"
#undef DRIVER

  /// The driver's word for a result: "CUDA_ERROR_OUT_OF_MEMORY".
  const char* name_of(CUresult result) const noexcept;
  /// A failed call as an error: Code::device_memory for out of memory, Code::driver otherwise.
  Error error(CUresult result, const char* call, const char* detail = "") const noexcept;
  /// `result` as a status. DEINITIALIZED is success: the driver has given everything back already.
  Status status(CUresult result, const char* call, const char* detail = "") const noexcept;
};

/// Fills the table by `resolve`, which must not go through interposed symbols. Code::unsupported names what is missing.
Result<Driver> load_driver(void* (*resolve)(void* library, const char* name), void* library) noexcept;

/// Makes a context current, and lets the calling thread use the driver although streams are being captured, while it
/// lives. A context of 0 leaves the current one.
class ContextGuard {
 public:
  ContextGuard(const Driver& driver, CUcontext context) noexcept;
  ContextGuard(const ContextGuard&) = delete;
  ContextGuard& operator=(const ContextGuard&) = delete;
  ~ContextGuard();
  /// Why the context could not be made current.
  CUresult result() const noexcept { return result_; }

 private:
  const Driver& driver_;
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
  bool pushed_ = false;
  CUresult result_ = CUDA_SUCCESS;
};

}  // namespace lowtide::cuda

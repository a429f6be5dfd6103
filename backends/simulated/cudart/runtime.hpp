// SPDX-License-Identifier: Apache-2.0
#pragma once

#pragma GCC visibility push(default)
#include <cuda.h>
#include <cuda_runtime_api.h>
#pragma GCC visibility pop

#include <array>
#include <mutex>

namespace lowtide::sim {

/// Pointers into libcuda.so.1, all from cuGetProcAddress_v2.
struct Driver {
#define DRIVER_FUNCTION(name) decltype(&::name) name = nullptr;
#include "backends/simulated/cudart/driver.def"
#undef DRIVER_FUNCTION
};

/// A runtime that reaches the driver the way the vendor's does: dlopen of libcuda.so.1, one dlsym of
/// cuGetProcAddress_v2, every function of the driver through that at the first call, then cuInit and the device's
/// primary context.
class Runtime {
 public:
  static Runtime& instance();

  /// cudaSuccess once the driver is there and initialised.
  cudaError_t start();
  /// The same, with a context of the thread's device current.
  cudaError_t enter();
  cudaError_t set_device(int device);
  cudaError_t reset_device();

  const Driver& driver() const { return driver_; }

 private:
  bool resolve();
  cudaError_t use_primary_context();

  std::mutex mutex_;
  bool started_ = false;
  cudaError_t result_ = cudaSuccess;
  Driver driver_;
  std::array<CUcontext, 16> primary_{};  ///< retained; nullptr if not
};

/// What cudaGetLastError tells this thread, and the device it chose.
struct RuntimeThread {
  cudaError_t last_error = cudaSuccess;
  int device = 0;
};
RuntimeThread& runtime_thread();

/// Remembers a failure for cudaGetLastError. The two enumerations share their numbers.
inline cudaError_t remember(cudaError_t error) {
  if (error != cudaSuccess) runtime_thread().last_error = error;
  return error;
}
inline cudaError_t remember(CUresult result) { return remember(static_cast<cudaError_t>(result)); }

/// Runs `call` with the driver table and a context.
template <class Call>
cudaError_t with_runtime(Call call) {
  auto& runtime = Runtime::instance();
  if (const auto error = runtime.enter(); error != cudaSuccess) return remember(error);
  return remember(call(runtime.driver()));
}

}  // namespace lowtide::sim

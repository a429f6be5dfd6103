// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <mutex>

#include "backends/simulated/hip/hip_abi.hpp"
#include "backends/simulated/hip/virtual_memory.hpp"
#include "backends/simulated/personas.hpp"

namespace lowtide::sim::hip {

/// HIP 6.1, as hipRuntimeGetVersion tells it: the first that has hipGetProcAddress.
constexpr int runtime_version = 60100000;

/// The process's HIP: the driver below, the persona, and one context for each device.
class Runtime {
 public:
  static Runtime& instance();

  /// hipSuccess once the persona is known and the driver is there and initialised.
  hipError_t start();
  /// The same, with the context of the thread's device current.
  hipError_t enter();
  hipError_t set_device(int device);
  hipError_t reset_device();
  /// The context of a device, for calls that name it.
  hipError_t context_of(int device, CUcontext& context);

  const Driver& driver() const { return driver_; }
  const Persona& persona() const { return *persona_; }
  VirtualMemory& virtual_memory() { return virtual_memory_; }

 private:
  hipError_t start_locked();
  hipError_t retain_locked(int device, CUcontext& context);

  std::mutex mutex_;
  bool started_ = false;
  hipError_t result_ = hipSuccess;
  Driver driver_;
  const Persona* persona_ = personas.data();
  int devices_ = 0;
  std::array<CUcontext, 16> contexts_{};  ///< retained; nullptr if not
  VirtualMemory virtual_memory_{driver_};
};

/// What hipGetLastError tells this thread, and the device it chose.
struct RuntimeThread {
  hipError_t last_error = hipSuccess;
  int device = 0;
};
RuntimeThread& runtime_thread();

/// The two enumerations share their numbers.
inline hipError_t as_hip(CUresult result) { return static_cast<hipError_t>(result); }
inline hipError_t as_hip(hipError_t error) { return error; }

/// Remembers a failure for hipGetLastError.
inline hipError_t remember(hipError_t error) {
  if (error != hipSuccess) runtime_thread().last_error = error;
  return error;
}

/// Runs `call(runtime)` once the runtime is started.
template <class Call>
hipError_t with_runtime(Call call) {
  auto& runtime = Runtime::instance();
  if (const auto error = runtime.start(); error != hipSuccess) return remember(error);
  return remember(as_hip(call(runtime)));
}

/// Runs `call(driver)` in the context of the thread's device.
template <class Call>
hipError_t with_device(Call call) {
  auto& runtime = Runtime::instance();
  if (const auto error = runtime.enter(); error != hipSuccess) return remember(error);
  return remember(as_hip(call(runtime.driver())));
}

/// The same for a call of the driver that says nothing but what is handed on.
template <class... Parameters, class... Arguments>
hipError_t forward(CUresult (*Driver::*function)(Parameters...), Arguments... arguments) {
  return with_device([&](const Driver& driver) {
    const auto call = driver.*function;
    return call == nullptr ? CUDA_ERROR_NOT_SUPPORTED : call(arguments...);
  });
}

}  // namespace lowtide::sim::hip

// SPDX-License-Identifier: Apache-2.0
#include "backends/simulated/hip/runtime.hpp"

#include "allocator/base/env.hpp"
#include "allocator/base/immortal.hpp"
#include "allocator/base/log.hpp"

namespace lowtide::sim::hip {

RuntimeThread& runtime_thread() {
  thread_local RuntimeThread state;
  return state;
}

Runtime& Runtime::instance() {
  static Immortal<Runtime> storage;
  static Runtime& runtime = storage.construct();
  return runtime;
}

hipError_t Runtime::start() {
  const std::lock_guard lock(mutex_);
  if (!started_) result_ = start_locked();
  started_ = true;
  return result_;
}

hipError_t Runtime::start_locked() {
  if (const auto name = env("LOWTIDE_SIM_PERSONA")) {
    persona_ = find_persona(*name);
    if (persona_ == nullptr) {
      log(LogLevel::error, "simulated HIP: LOWTIDE_SIM_PERSONA=%.*s: wanted %s", static_cast<int>(name->size()),
          name->data(), persona_names);
      return hipErrorInvalidValue;
    }
  }
  const auto opened = open_driver();
  if (!opened) return hipErrorNoDevice;
  driver_ = *opened;
  virtual_memory_.play(*persona_);
  if (const auto result = driver_.cuInit(0); result != CUDA_SUCCESS) return as_hip(result);
  const auto counted = driver_.cuDeviceGetCount(&devices_);
  if (devices_ > static_cast<int>(contexts_.size())) devices_ = static_cast<int>(contexts_.size());
  return as_hip(counted);
}

hipError_t Runtime::retain_locked(int device, CUcontext& context) {
  if (device < 0 || device >= devices_) return hipErrorInvalidDevice;
  auto& retained = contexts_[static_cast<std::size_t>(device)];
  if (retained == nullptr) {
    if (const auto result = driver_.cuDevicePrimaryCtxRetain(&retained, device); result != CUDA_SUCCESS) {
      return as_hip(result);
    }
  }
  context = retained;
  return hipSuccess;
}

hipError_t Runtime::context_of(int device, CUcontext& context) {
  const std::lock_guard lock(mutex_);
  return retain_locked(device, context);
}

hipError_t Runtime::enter() {
  if (const auto error = start(); error != hipSuccess) return error;
  CUcontext wanted = nullptr;
  if (const auto error = context_of(runtime_thread().device, wanted); error != hipSuccess) return error;
  CUcontext current = nullptr;
  const auto result = driver_.cuCtxGetCurrent(&current);
  if (result != CUDA_SUCCESS || current == wanted) return as_hip(result);
  return as_hip(driver_.cuCtxSetCurrent(wanted));
}

hipError_t Runtime::set_device(int device) {
  CUcontext context = nullptr;
  if (const auto error = context_of(device, context); error != hipSuccess) return error;
  runtime_thread().device = device;
  return hipSuccess;
}

hipError_t Runtime::reset_device() {
  const std::lock_guard lock(mutex_);
  const int device = runtime_thread().device;
  // A context that was retained before must be retained again after the reset, under whatever handle it gets then.
  contexts_[static_cast<std::size_t>(device)] = nullptr;
  return as_hip(driver_.cuDevicePrimaryCtxReset_v2(device));
}

}  // namespace lowtide::sim::hip

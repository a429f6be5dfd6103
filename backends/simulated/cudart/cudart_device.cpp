// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "backends/simulated/cudart/runtime.hpp"

using lowtide::sim::Driver;
using lowtide::sim::remember;
using lowtide::sim::Runtime;
using lowtide::sim::runtime_thread;
using lowtide::sim::with_runtime;

namespace {

/// A text of the driver for an error, which needs no context.
const char* text_of(cudaError_t error, decltype(&::cuGetErrorName) Driver::*member) {
  auto& runtime = Runtime::instance();
  const char* text = nullptr;
  if (runtime.start() == cudaSuccess) (runtime.driver().*member)(static_cast<CUresult>(error), &text);
  return text == nullptr ? "unrecognized error code" : text;
}

}  // namespace

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  auto& runtime = Runtime::instance();
  if (const auto error = runtime.start(); error != cudaSuccess) return remember(error);
  return remember(runtime.driver().cuDeviceGetCount(count));
}

cudaError_t cudaSetDevice(int device) { return remember(Runtime::instance().set_device(device)); }

cudaError_t cudaGetDevice(int* device) {
  if (device == nullptr) return remember(cudaErrorInvalidValue);
  *device = runtime_thread().device;
  return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize(void) {
  return with_runtime([](const Driver& driver) { return driver.cuCtxSynchronize(); });
}

cudaError_t cudaDeviceReset(void) { return remember(Runtime::instance().reset_device()); }

cudaError_t cudaGetLastError(void) { return std::exchange(runtime_thread().last_error, cudaSuccess); }
cudaError_t cudaPeekAtLastError(void) { return runtime_thread().last_error; }
const char* cudaGetErrorName(cudaError_t error) { return text_of(error, &Driver::cuGetErrorName); }
const char* cudaGetErrorString(cudaError_t error) { return text_of(error, &Driver::cuGetErrorString); }

cudaError_t cudaRuntimeGetVersion(int* version) {
  if (version == nullptr) return remember(cudaErrorInvalidValue);
  *version = CUDART_VERSION;
  return cudaSuccess;
}

}  // extern "C"

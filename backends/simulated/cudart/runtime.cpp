// SPDX-License-Identifier: Apache-2.0
#include "backends/simulated/cudart/runtime.hpp"

#include <dlfcn.h>

#include "allocator/base/immortal.hpp"

namespace lowtide::sim {
namespace {

constexpr int runtime_version = 13000;

/// The vendor's runtime looks up all functions of the driver, whatever it will call.
constexpr std::array all_functions{
#define SIM_FUNCTION(exported, base, since, stream) base,
#include "backends/simulated/functions.def"
#undef SIM_FUNCTION
};

}  // namespace

RuntimeThread& runtime_thread() {
  thread_local RuntimeThread state;
  return state;
}

Runtime& Runtime::instance() {
  static Immortal<Runtime> storage;
  static Runtime& runtime = storage.construct();
  return runtime;
}

bool Runtime::resolve() {
  void* const library = ::dlopen("libcuda.so.1", RTLD_NOW);
  if (library == nullptr) return false;
  const auto look_up = reinterpret_cast<decltype(&::cuGetProcAddress)>(::dlsym(library, "cuGetProcAddress_v2"));
  if (look_up == nullptr) return false;
  const auto find = [&](const char* name, int version) {
    void* address = nullptr;
    CUdriverProcAddressQueryResult status{};
    look_up(name, &address, version, CU_GET_PROC_ADDRESS_LEGACY_STREAM, &status);
    return address;
  };
  find("", 0);
  for (const char* name : all_functions) find(name, runtime_version);
#define DRIVER_FUNCTION(name)                                                            \
  driver_.name = reinterpret_cast<decltype(driver_.name)>(find(#name, runtime_version)); \
  if (driver_.name == nullptr) return false;
#include "backends/simulated/cudart/driver.def"
#undef DRIVER_FUNCTION
  return true;
}

cudaError_t Runtime::start() {
  const std::lock_guard lock(mutex_);
  if (started_) return result_;
  if (!resolve()) return cudaErrorInsufficientDriver;
  const void* table = nullptr;
  CUuuid uuid{};
  for (int i = 0; i < 2; ++i) driver_.cuGetExportTable(&table, &uuid);
  result_ = static_cast<cudaError_t>(driver_.cuInit(0));
  started_ = true;
  return result_;
}

cudaError_t Runtime::use_primary_context() {
  const std::lock_guard lock(mutex_);
  const auto device = runtime_thread().device;
  auto& context = primary_[static_cast<std::size_t>(device)];
  if (context == nullptr) {
    const auto retained = driver_.cuDevicePrimaryCtxRetain(&context, device);
    if (retained != CUDA_SUCCESS) return static_cast<cudaError_t>(retained);
  }
  return static_cast<cudaError_t>(driver_.cuCtxSetCurrent(context));
}

cudaError_t Runtime::enter() {
  if (const auto error = start(); error != cudaSuccess) return error;
  CUcontext current = nullptr;
  if (const auto result = driver_.cuCtxGetCurrent(&current); result != CUDA_SUCCESS) {
    return static_cast<cudaError_t>(result);
  }
  // A context that the host made current itself stays; one that a reset ended is made anew under the same handle.
  CUdevice device = 0;
  const bool alive = current != nullptr && driver_.cuCtxGetDevice(&device) == CUDA_SUCCESS;
  return alive ? cudaSuccess : use_primary_context();
}

cudaError_t Runtime::set_device(int device) {
  if (const auto error = start(); error != cudaSuccess) return error;
  int count = 0;
  driver_.cuDeviceGetCount(&count);
  if (device < 0 || device >= count) return cudaErrorInvalidDevice;
  runtime_thread().device = device;
  return use_primary_context();
}

cudaError_t Runtime::reset_device() {
  if (const auto error = start(); error != cudaSuccess) return error;
  const std::lock_guard lock(mutex_);
  const auto device = runtime_thread().device;
  primary_[static_cast<std::size_t>(device)] = nullptr;
  return static_cast<cudaError_t>(driver_.cuDevicePrimaryCtxReset(device));
}

}  // namespace lowtide::sim

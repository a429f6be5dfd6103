// SPDX-License-Identifier: Apache-2.0
#include "backends/cuda/driver.hpp"

namespace lowtide::cuda {

const char* Driver::name_of(CUresult result) const noexcept {
  const char* name = nullptr;
  if (cuGetErrorName == nullptr || cuGetErrorName(result, &name) != CUDA_SUCCESS || name == nullptr) return "unknown";
  return name;
}

Error Driver::error(CUresult result, const char* call, const char* detail) const noexcept {
  const auto text = Error::format(Code::driver, "%s%s%s answered %s (%d)", call, *detail != '\0' ? " " : "", detail,
                                  name_of(result), static_cast<int>(result));
  const Code code = result == CUDA_ERROR_OUT_OF_MEMORY ? Code::device_memory : Code::driver;
  return Error(code, static_cast<int>(result), call, text.message());
}

Status Driver::status(CUresult result, const char* call, const char* detail) const noexcept {
  if (result == CUDA_SUCCESS || result == CUDA_ERROR_DEINITIALIZED) return {};
  return fail(error(result, call, detail));
}

Result<Driver> load_driver(void* (*resolve)(void* library, const char* name), void* library) noexcept {
  Driver driver;
  const char* missing = nullptr;
#define DRIVER(name)                                                              \
  driver.name = reinterpret_cast<decltype(driver.name)>(resolve(library, #name)); \
  if (driver.name == nullptr) missing = #name;
#include "backends/cuda/driver.def"
#undef DRIVER
  if (missing != nullptr) {
    return fail(
        Error::format(Code::unsupported, "this CUDA driver has no %s: it is older than Lowtide needs", missing));
  }
  return driver;
}

ContextGuard::ContextGuard(const Driver& driver, CUcontext context) noexcept : driver_(driver) {
  (void)driver_.cuThreadExchangeStreamCaptureMode(&mode_);
  if (context == nullptr) return;
  result_ = driver_.cuCtxPushCurrent_v2(context);
  pushed_ = result_ == CUDA_SUCCESS;
}

ContextGuard::~ContextGuard() {
  CUcontext popped = nullptr;
  if (pushed_) (void)driver_.cuCtxPopCurrent_v2(&popped);
  (void)driver_.cuThreadExchangeStreamCaptureMode(&mode_);
}

}  // namespace lowtide::cuda

// SPDX-License-Identifier: Apache-2.0
#include "backends/hip/runtime.hpp"

namespace lowtide::hip {

Error Runtime::error(hipError_t result, const char* call, const char* detail) const noexcept {
  const char* const name = hipGetErrorName(result);
  const auto text = Error::format(Code::driver, "%s%s%s answered %s (%d)", call, *detail != '\0' ? " " : "", detail,
                                  name != nullptr ? name : "unknown", static_cast<int>(result));
  const Code code = result == hipErrorOutOfMemory ? Code::device_memory : Code::driver;
  return Error(code, static_cast<int>(result), call, text.message());
}

Status Runtime::status(hipError_t result, const char* call, const char* detail) const noexcept {
  if (result == hipSuccess || result == hipErrorDeinitialized) return {};
  return fail(error(result, call, detail));
}

Result<Runtime> load_runtime(void* (*resolve)(void* library, const char* name), void* library) noexcept {
  Runtime runtime;
  const char* missing = nullptr;
#define RUNTIME(name)                                                               \
  runtime.name = reinterpret_cast<decltype(runtime.name)>(resolve(library, #name)); \
  if (runtime.name == nullptr) missing = #name;
#include "backends/hip/runtime.def"
#undef RUNTIME
  if (missing != nullptr) {
    return fail(
        Error::format(Code::unsupported, "this HIP runtime has no %s: it is older than Lowtide needs", missing));
  }
  return runtime;
}

DeviceGuard::DeviceGuard(const Runtime& runtime, DeviceId device) noexcept : runtime_(runtime) {
  (void)runtime_.hipThreadExchangeStreamCaptureMode(&mode_);
  result_ = runtime_.hipGetDevice(&before_);
  if (result_ != hipSuccess || before_ == index_of(device)) return;
  result_ = runtime_.hipSetDevice(index_of(device));
  changed_ = result_ == hipSuccess;
}

DeviceGuard::~DeviceGuard() {
  if (changed_) (void)runtime_.hipSetDevice(before_);
  (void)runtime_.hipThreadExchangeStreamCaptureMode(&mode_);
}

}  // namespace lowtide::hip

// SPDX-License-Identifier: Apache-2.0
#include "backends/hip/runtime.hpp"

namespace lowtide::hip {

const char* Runtime::name_of(hipError_t result) const noexcept {
  const char* name = hipGetErrorName == nullptr ? nullptr : hipGetErrorName(result);
  return name == nullptr ? "unknown" : name;
}

Error Runtime::error(hipError_t result, const char* call, const char* detail) const noexcept {
  const auto text = Error::format(Code::driver, "%s%s%s answered %s (%d)", call, *detail != '\0' ? " " : "", detail,
                                  name_of(result), static_cast<int>(result));
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

DeviceGuard::DeviceGuard(const Runtime& runtime, int device) noexcept : runtime_(runtime) {
  (void)runtime_.hipThreadExchangeStreamCaptureMode(&mode_);
  int current = -1;
  if (runtime_.hipGetDevice(&current) != hipSuccess || current == device) return;
  if (runtime_.hipSetDevice(device) == hipSuccess) previous_ = current;
}

DeviceGuard::~DeviceGuard() {
  if (previous_ >= 0) (void)runtime_.hipSetDevice(previous_);
  (void)runtime_.hipThreadExchangeStreamCaptureMode(&mode_);
}

Result<std::unique_ptr<Backend>> probe(const Runtime& /*runtime*/, DeviceId /*device*/) {
  return fail(Code::unsupported, "this build has no backend for HIP");
}

}  // namespace lowtide::hip

// SPDX-License-Identifier: Apache-2.0
#include "allocator/base/result.hpp"

#include <algorithm>
#include <cstdarg>
#include <cstdio>

namespace lowtide {

Error::Error(Code code, int native, const char* call, std::string_view message) noexcept
    : code_(code), native_(native), call_(call), message_{} {
  const auto length = std::min(message.size(), message_.size() - 1);
  std::copy_n(message.data(), length, message_.data());
}

Error Error::format(Code code, const char* format, ...) noexcept {
  Error error(code, "");
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(error.message_.data(), error.message_.size(), format, arguments);
  va_end(arguments);
  return error;
}

const char* to_text(Code code) noexcept {
  switch (code) {
    case Code::invalid: return "INVALID";
    case Code::config: return "CONFIG";
    case Code::device_memory: return "DEVICE_MEMORY";
    case Code::host_budget: return "HOST_BUDGET";
    case Code::refused: return "REFUSED";
    case Code::moved: return "MOVED";
    case Code::driver: return "DRIVER";
    case Code::unsupported: return "UNSUPPORTED";
    case Code::corrupt: return "CORRUPT";
    case Code::busy: return "BUSY";
  }
  return "UNKNOWN";
}

}  // namespace lowtide

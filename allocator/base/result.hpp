// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <string_view>
#include <tl/expected.hpp>

namespace lowtide {

/// Why something could not be done. The values are those of `lowtide_result` in lowtide.h (a static assertion in
/// lowtide_c.cpp holds them together).
enum class Code : int {
  invalid = -1,        ///< an argument or a call that can never be right
  config = -2,         ///< an unknown key or a bad value
  device_memory = -3,  ///< the device has not enough free memory now
  host_budget = -4,    ///< the host has not enough memory for a backup now
  refused = -5,        ///< a rule, a capture, a sharer or a full disk stands in the way
  moved = -6,          ///< an address could not be had back
  driver = -7,         ///< a call of the driver or of the disk failed; `native` says how
  unsupported = -8,    ///< this device, driver or build cannot do it
  corrupt = -9,        ///< a backup does not hold what was written to it
  busy = -10,          ///< another operation is under way and the caller asked not to wait
};

/// An error as a value. Trivially copyable and free of allocation, so that it can be made when memory is short.
/// `message` is for people: what was needed, what there was, who is in the way, what to do.
class Error {
 public:
  Error(Code code, std::string_view message) noexcept : Error(code, 0, "", message) {}
  Error(Code code, int native, const char* call, std::string_view message) noexcept;

  /// As printf; too long a text is cut.
  [[gnu::format(printf, 2, 3)]] static Error format(Code code, const char* format, ...) noexcept;

  Code code() const noexcept { return code_; }
  /// The driver's own number, 0 if no driver call failed.
  int native() const noexcept { return native_; }
  /// The call that failed, a string literal, "" if none did.
  const char* call() const noexcept { return call_; }
  const char* message() const noexcept { return message_.data(); }

 private:
  Code code_;
  int native_;
  const char* call_;
  std::array<char, 320> message_;
};

template <class T>
using Result = tl::expected<T, Error>;
using Status = Result<void>;
using Failure = tl::unexpected<Error>;

inline Failure fail(const Error& error) { return Failure(error); }
inline Failure fail(Code code, std::string_view message) { return Failure(Error(code, message)); }

/// "DEVICE_MEMORY" and so on, for JSON and messages.
const char* to_text(Code code) noexcept;

}  // namespace lowtide

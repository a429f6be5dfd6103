// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>

#include "allocator/base/bytes.hpp"

namespace lowtide {

/// Writes one JSON value on one line. The caller opens and closes in the right order; commas come by themselves. Text
/// that is not UTF-8 gets replacement characters; numbers do not depend on the host's locale; what JSON cannot say
/// (infinity) is null.
class JsonWriter {
 public:
  JsonWriter& begin_object() { return open('{'); }
  JsonWriter& end_object() { return close('}'); }
  JsonWriter& begin_array() { return open('['); }
  JsonWriter& end_array() { return close(']'); }
  /// The name of the next value, inside an object.
  JsonWriter& key(std::string_view name);

  JsonWriter& value(std::string_view text);
  JsonWriter& value(const char* text) { return value(std::string_view(text)); }
  JsonWriter& value(bool flag) { return raw(flag ? "true" : "false"); }
  JsonWriter& value(double number);
  JsonWriter& value(Bytes bytes) { return value(bytes.value); }
  template <std::integral Integer>
  JsonWriter& value(Integer number) {
    if constexpr (std::signed_integral<Integer>) return integer(static_cast<std::int64_t>(number));
    return natural(static_cast<std::uint64_t>(number));
  }
  JsonWriter& null() { return raw("null"); }
  /// `json` is a whole JSON value already.
  JsonWriter& raw(std::string_view json);

  template <class T>
  JsonWriter& field(std::string_view name, const T& content) {
    return key(name).value(content);
  }

  const std::string& text() const noexcept { return text_; }
  std::string take() noexcept { return std::move(text_); }

 private:
  JsonWriter& open(char bracket);
  JsonWriter& close(char bracket);
  JsonWriter& integer(std::int64_t number);
  JsonWriter& natural(std::uint64_t number);
  void separate();
  void quote(std::string_view text);

  std::string text_;
  bool needs_comma_ = false;
};

}  // namespace lowtide

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lowtide::tools {

/// One message in the wire format of protocol buffers.
class Message {
 public:
  void add(std::uint32_t field, std::uint64_t number) {
    put(std::uint64_t{field} << 3);
    put(number);
  }
  void add(std::uint32_t field, std::string_view bytes) {
    put(std::uint64_t{field} << 3 | 2);
    put(bytes.size());
    bytes_ += bytes;
  }
  void add(std::uint32_t field, const Message& message) { add(field, std::string_view(message.bytes_)); }

  const std::string& bytes() const { return bytes_; }

 private:
  void put(std::uint64_t number) {
    for (; number >= 0x80; number >>= 7) bytes_ += static_cast<char>(number | 0x80);
    bytes_ += static_cast<char>(number);
  }

  std::string bytes_;
};

}  // namespace lowtide::tools

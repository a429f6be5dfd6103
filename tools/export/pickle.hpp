// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "tools/export/output.hpp"

namespace lowtide::tools {

/// Writes a pickle of protocol 2 with the few opcodes that PyTorch's memory viewer reads in the browser too.
class Pickle {
 public:
  explicit Pickle(Output& output) : output_(output) { op('\x80'), op('\x02'); }

  void begin_dictionary() { op('}'), op('('); }  ///< behind it: keys and values
  void end_dictionary() { op('u'); }
  void begin_list() { op(']'), op('('); }
  void end_list() { op('e'); }
  void text(std::string_view text);
  void number(std::uint64_t number);
  void boolean(bool value) { op(value ? '\x88' : '\x89'); }

  void key(std::string_view name) { text(name); }
  void pair(std::string_view name, std::string_view value) { key(name), text(value); }
  void pair(std::string_view name, std::uint64_t value) { key(name), number(value); }

  void finish();

 private:
  void op(char code) { buffer_ += code; }
  void flush_when_full();

  Output& output_;
  std::string buffer_;
  std::map<std::string, std::uint8_t, std::less<>> known_;  ///< texts that were written once
};

}  // namespace lowtide::tools

// SPDX-License-Identifier: Apache-2.0
#include "tools/export/pickle.hpp"

namespace lowtide::tools {
namespace {

// What one byte can count. There is a longer opcode, but the viewer does not know it.
constexpr std::size_t most_known = 256;
constexpr std::size_t longest_known = 32;
constexpr std::size_t buffer_size = std::size_t{1} << 16;

void put_little(std::string& buffer, std::uint64_t number, int bytes) {
  for (int i = 0; i < bytes; ++i) buffer += static_cast<char>(number >> (8 * i));
}

}  // namespace

void Pickle::text(std::string_view text) {
  if (const auto found = known_.find(text); found != known_.end()) {
    op('h');
    op(static_cast<char>(found->second));
    return;
  }
  op('X');
  put_little(buffer_, text.size(), 4);
  buffer_ += text;
  if (text.size() <= longest_known && known_.size() < most_known) {
    const auto place = static_cast<std::uint8_t>(known_.size());
    known_.emplace(text, place);
    op('q');
    op(static_cast<char>(place));
  }
  flush_when_full();
}

void Pickle::number(std::uint64_t number) {
  if (number < 0x100) {
    op('K');
    put_little(buffer_, number, 1);
  } else if (number < 0x80000000) {
    op('J');
    put_little(buffer_, number, 4);
  } else {
    op('\x8a');  // with a zero above, or the highest bit would be its sign
    op('\x09');
    put_little(buffer_, number, 8);
    op('\0');
  }
  flush_when_full();
}

void Pickle::flush_when_full() {
  if (buffer_.size() < buffer_size) return;
  output_.write(buffer_);
  buffer_.clear();
}

void Pickle::finish() {
  op('.');
  output_.write(buffer_);
  buffer_.clear();
}

}  // namespace lowtide::tools

// SPDX-License-Identifier: Apache-2.0
#include "allocator/policy/toml_text.hpp"

#include <algorithm>

namespace lowtide {
namespace {

/// Behind the quotes that close a string. A long one may hold up to two of them right before its end.
std::size_t end_of_quotes(std::string_view text, std::size_t at, std::size_t quotes) {
  std::size_t end = at + quotes;
  const std::size_t most = quotes == 3 ? end + 2 : end;
  while (end < most && end < text.size() && text[end] == text[at]) ++end;
  return end;
}

/// The end of the comment or the string that begins at `start`; `start` itself if none does. What is not closed ends
/// with its line, or, where it may have many, with the text: the parser complains of it there.
std::size_t end_of_literal(std::string_view text, std::size_t start) {
  const char first = text[start];
  const auto end_of_line = std::min(text.find('\n', start), text.size());
  if (first == '#') return end_of_line;
  if (first != '"' && first != '\'') return start;
  const bool long_one = text.substr(start, 3) == std::string_view(first == '"' ? "\"\"\"" : "'''");
  const std::size_t quotes = long_one ? 3 : 1;
  const std::size_t limit = long_one ? text.size() : end_of_line;
  for (std::size_t at = start + quotes; at < limit; ++at) {
    if (text[at] == '\\' && first == '"')
      ++at;  // what is escaped ends nothing
    else if (text.substr(at, quotes) == text.substr(start, quotes))
      return end_of_quotes(text, at, quotes);
  }
  return limit;
}

}  // namespace

std::optional<unsigned> stray_non_ascii(std::string_view text) noexcept {
  // A mark at the start, which some editors put there, is none of ours and no stray.
  std::size_t at = text.starts_with("\xef\xbb\xbf") ? 3 : 0;
  while (at < text.size()) {
    if (static_cast<unsigned char>(text[at]) >= 0x80) {
      return 1 + static_cast<unsigned>(std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at), '\n'));
    }
    const auto end = end_of_literal(text, at);
    at = end == at ? at + 1 : end;
  }
  return std::nullopt;
}

}  // namespace lowtide

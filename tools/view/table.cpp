// SPDX-License-Identifier: Apache-2.0
#include "tools/view/table.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace lowtide::tools {

Table::Table(std::vector<std::string> titles) {
  for (auto& title : titles) {
    flush_right_.push_back(title.starts_with('>'));
    if (flush_right_.back()) title.erase(0, 1);
  }
  rows_.push_back(std::move(titles));
}

void Table::add(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }

std::string Table::text() const {
  std::vector<std::size_t> widths(flush_right_.size());
  for (const auto& row : rows_) {
    for (std::size_t i = 0; i < widths.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const auto& row : rows_) {
    std::string line;
    for (std::size_t i = 0; i < widths.size(); ++i) {
      const bool last = i + 1 == widths.size();
      line += flush_right_[i] ? fmt::format("{:>{}}", row[i], widths[i])
                              : fmt::format("{:<{}}", row[i], last ? 0 : widths[i]);
      if (!last) line += "  ";
    }
    text += line + '\n';
  }
  return text;
}

}  // namespace lowtide::tools

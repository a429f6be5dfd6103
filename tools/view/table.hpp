// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace lowtide::tools {

/// Columns as wide as their widest cell; the last one is not padded. Columns whose title starts with '>' are flush
/// right.
class Table {
 public:
  explicit Table(std::vector<std::string> titles);
  void add(std::vector<std::string> cells);  ///< as many as there are titles
  std::string text() const;

 private:
  std::vector<std::vector<std::string>> rows_;
  std::vector<bool> flush_right_;
};

}  // namespace lowtide::tools

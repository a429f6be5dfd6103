// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <istream>
#include <map>
#include <string>

#include "tools/trace/memory_line.hpp"
#include "tools/trace/profile.hpp"

namespace lowtide::tools {

/// Reads the memory lines of one training log after the other into one profile: each label is a phase, and each time
/// that it stands in the log a run of it.
class LogReader {
 public:
  /// All lines up to the end. What is no memory line is passed over.
  void read(std::istream& log);
  Profile take() &&;
  std::size_t lines() const { return lines_; }  ///< memory lines so far

 private:
  void take_line(std::string_view text);
  DeviceProfile& place(const MemoryLine& line);

  Profile profile_;
  std::map<std::string, std::uint64_t> runs_;  ///< so far, by where a line came from and its label
  std::size_t lines_ = 0;
  std::uint64_t repeated_ = 0;
};

}  // namespace lowtide::tools

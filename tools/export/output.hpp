// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>

namespace lowtide::tools {

/// What an export writes: a file that is there whole or not at all, or stdout for "-". A device, a pipe or a link that
/// is there already stays, and is written to as it is. Throws CommandError (failed) if it cannot be written.
class Output {
 public:
  explicit Output(std::string path);
  /// Without finish() nothing is left behind.
  ~Output();
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

  void write(std::string_view bytes);
  void finish();

 private:
  [[noreturn]] void fail(const char* what) const;

  const std::string path_;
  const std::string draft_;  ///< beside it, until it is whole; "": it is written at once
  std::FILE* file_ = nullptr;
};

}  // namespace lowtide::tools

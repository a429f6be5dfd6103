// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mutex>
#include <string>
#include <string_view>

#include "allocator/base/result.hpp"

namespace lowtide {

/// A file for the textfile collector of Prometheus's node_exporter: whoever reads it finds a whole text. Thread-safe.
class MetricsFile {
 public:
  /// `path` is absolute; its folder is not made.
  explicit MetricsFile(std::string path) : path_(std::move(path)), next_(path_ + ".next") {}

  /// Puts `text` in the place of what was there. Code::config, and what was there stays, if the folder is not usable or
  /// full. Does nothing after `remove`.
  Status replace(std::string_view text);
  void remove() noexcept;

 private:
  const std::string path_;
  const std::string next_;  ///< which node_exporter does not read, by its name
  std::mutex mutex_;
  bool removed_ = false;
};

}  // namespace lowtide

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mutex>
#include <string>
#include <string_view>

#include "allocator/base/file_identity.hpp"
#include "allocator/base/result.hpp"

namespace lowtide {

/// A file for the textfile collector of Prometheus's node_exporter: whoever reads it finds a whole text. Thread-safe.
class MetricsFile {
 public:
  /// `path` is absolute; its folder is not made.
  explicit MetricsFile(std::string path) : path_(std::move(path)), next_(path_ + ".next") {}

  /// Puts `text` in the place of the metrics that were there, this process's or older ones. Code::config, and what was
  /// there stays, if that is anything else, or the folder is not usable or full. Does nothing after `remove`.
  Status replace(std::string_view text);
  /// What is there goes, if this process has put it there.
  void remove() noexcept;

 private:
  const std::string path_;
  const std::string next_;  ///< which node_exporter does not read, by its name
  std::mutex mutex_;
  FileIdentity ours_;  ///< that was put there last
  bool removed_ = false;
};

}  // namespace lowtide

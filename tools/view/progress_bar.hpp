// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <chrono>
#include <map>
#include <mutex>
#include <string>

#include "allocator/base/bytes.hpp"

namespace lowtide::tools {

/// One bar on stderr for several processes together. Drawn only on a terminal and only after a second: what is quick
/// needs no bar. Thread-safe.
class ProgressBar {
 public:
  explicit ProgressBar(std::string verb) : verb_(std::move(verb)) {}
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  void update(pid_t process, Bytes done, Bytes total);

 private:
  struct Share {
    Bytes done;
    Bytes total;
  };

  const std::string verb_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::mutex mutex_;
  std::map<pid_t, Share> shares_;
  bool drawn_ = false;
};

}  // namespace lowtide::tools

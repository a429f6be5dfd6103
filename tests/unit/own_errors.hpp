// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <string_view>

#include "allocator/base/log.hpp"

namespace lowtide::test {

/// While it lives, what the process writes to stderr is kept here, warnings included.
class OwnErrors {
 public:
  OwnErrors() : before_(::dup(STDERR_FILENO)), kept_(::memfd_create("errors", MFD_CLOEXEC)) {
    if (before_ < 0 || kept_ < 0 || ::dup2(kept_, STDERR_FILENO) < 0) throw std::runtime_error("no stderr of its own");
    set_log_level(LogLevel::warning);
  }
  OwnErrors(const OwnErrors&) = delete;
  OwnErrors& operator=(const OwnErrors&) = delete;
  ~OwnErrors() {
    ::dup2(before_, STDERR_FILENO);
    ::close(before_);
    ::close(kept_);
  }

  /// How often `text` was written.
  std::size_t count(std::string_view text) const {
    std::string all(1 << 16, '\0');
    all.resize(static_cast<std::size_t>(std::max<ssize_t>(::pread(kept_, all.data(), all.size(), 0), 0)));
    std::size_t found = 0;
    for (auto at = all.find(text); at != all.npos; at = all.find(text, at + 1)) ++found;
    return found;
  }

 private:
  const int before_;
  const int kept_;
};

}  // namespace lowtide::test

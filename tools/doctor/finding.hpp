// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace lowtide::tools {

enum class Level { ok, note, warning, error };

const char* to_text(Level level) noexcept;

/// One thing that the doctor looked at.
struct Finding {
  Level level = Level::ok;
  std::string subject;  ///< a few words that stay the same, for --json: "driver", "host memory"
  std::string text;     ///< one line: what is there
  std::string advice;   ///< what to do; "" if nothing
};

using Findings = std::vector<Finding>;

}  // namespace lowtide::tools

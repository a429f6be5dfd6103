// SPDX-License-Identifier: Apache-2.0
#include "tools/doctor/finding.hpp"

namespace lowtide::tools {

const char* to_text(Level level) noexcept {
  switch (level) {
    case Level::ok: return "ok";
    case Level::note: return "note";
    case Level::warning: return "warning";
    case Level::error: return "error";
  }
  return "";
}

}  // namespace lowtide::tools

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace lowtide::tools {

/// "1 block", "2 blocks", "2 processes".
inline std::string counted(std::uint64_t number, std::string_view noun) {
  return fmt::format("{} {}{}", number, noun, number == 1 ? "" : noun.ends_with('s') ? "es" : "s");
}

}  // namespace lowtide::tools

// SPDX-License-Identifier: Apache-2.0
#include "allocator/base/env.hpp"

#include <strings.h>

#include <cstdlib>

namespace lowtide {

std::optional<std::string_view> env(const char* name) noexcept {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return value;
}

bool env_flag(const char* name) noexcept {
  const auto value = env(name);
  if (!value) return false;
  for (const char* yes : {"1", "true", "yes", "on"}) {
    if (::strcasecmp(value->data(), yes) == 0) return true;
  }
  return false;
}

}  // namespace lowtide

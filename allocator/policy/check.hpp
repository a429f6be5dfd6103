// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <vector>

#include "allocator/policy/configuration.hpp"

namespace lowtide {

/// Something in a configuration that cannot work, or that its writer cannot have meant.
struct Finding {
  unsigned line = 0;  ///< of the file; 0: not known
  std::string message;
};

/// Tags that nothing gives, rules that wait for each other in a circle, content that is dropped and never refilled, and
/// phases whose steps break a rule; in the order of their lines. `lines` is what key_lines() says of the file.
std::vector<Finding> check_policy(const Configuration& configuration, const std::map<std::string, unsigned>& lines);

}  // namespace lowtide

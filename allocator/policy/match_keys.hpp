// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "allocator/base/result.hpp"
#include "allocator/policy/match.hpp"

namespace lowtide {

/// One row of the table of what a [[match]] may say: all that the parser, the messages and docs/configuration.md know.
struct MatchKey {
  std::string_view name;
  std::string_view allowed;  ///< for messages, after "is not"
  std::string_view help;
  /// Sets the value if it is allowed, else answers false and changes nothing.
  bool (*set)(MatchRule&, std::string_view value);
};

std::span<const MatchKey> match_keys() noexcept;

/// Sets one key of a rule to a scalar; null: the file has something else there. `where` stands before every message and
/// names the file, the line and the rule.
Status set_match_key(MatchRule& rule, std::string_view where, std::string_view key, const std::string* value);

/// Whether the rule, all keys set, has a tag and a condition.
Status check_complete(const MatchRule& rule, std::string_view where);

}  // namespace lowtide

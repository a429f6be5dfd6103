// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "allocator/policy/configuration.hpp"

namespace lowtide {

/// One row of the table of keys: all that the parser, the messages and docs/configuration.md know of a key.
struct Key {
  std::string_view name;      ///< "tag.NAME.pause"; NAME stands for any tag
  std::string_view allowed;   ///< for messages, after "is not"
  std::string_view fallback;  ///< the default, for people
  std::string_view help;
  std::span<const std::string_view> choices;  ///< the allowed words, if the value is one of a few
  /// Sets the value if it is allowed, else answers false and changes nothing. Exactly one of the two is not null:
  /// a list can only stand in the file.
  bool (*set_text)(Configuration&, const TagName&, std::string_view value);
  bool (*set_list)(Configuration&, const std::vector<std::string>& value);
};

/// The tables, by what they are about.
std::array<std::span<const Key>, 4> configuration_keys() noexcept;

/// A value as a source spelled it: a scalar's text, or the strings of a list.
using Value = std::variant<std::string, std::vector<std::string>>;

/// Sets `key`. `where` stands before every message: "", or "FILE:LINE: ".
Status set_key(Configuration& configuration, std::string_view where, std::string_view key, const Value& value);

/// Whether `table` is the start of a key: "tag", "tag.weights", "device".
bool is_table_of_keys(std::string_view table);

/// The error for a key that does not exist.
Error unknown_key(std::string_view where, std::string_view key);

}  // namespace lowtide

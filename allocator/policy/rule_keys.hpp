// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string_view>

#include "allocator/policy/keys.hpp"
#include "allocator/policy/sync_settings.hpp"

namespace lowtide {

/// What a [[rule]] or a [[phase]] may say: for the messages and docs/configuration.md.
struct EntryKey {
  std::string_view name;
  std::string_view allowed;  ///< for messages, after "is not"
  std::string_view help;
};

std::span<const EntryKey> rule_keys() noexcept;
std::span<const EntryKey> phase_keys() noexcept;

/// Sets one key. `where` stands before every message and names the file, the line and the rule or phase.
Status set_rule_key(Rule& rule, std::string_view where, std::string_view key, const Value& value);
Status set_phase_key(Phase& phase, std::string_view where, std::string_view key, const Value& value);

/// Whether the rule, all keys set, has an event and something that it asks for or does.
Status check_complete(const Rule& rule, std::string_view where);
/// Whether the phase has a name, and lists or steps, but not both.
Status check_complete(const Phase& phase, std::string_view where);

}  // namespace lowtide

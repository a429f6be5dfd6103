// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "allocator/policy/holdings.hpp"

namespace lowtide {

/// Which tag of which processes a rule is about: "weights", or "engine.weights" for those of one role.
struct TagSelector {
  std::optional<TagName> role;
  TagName tag;

  static std::optional<TagSelector> parse(std::string_view text) noexcept;
  /// A process without a role is of every role: nobody said that it is not.
  bool is_of(const std::optional<TagName>& process_role) const noexcept {
    return !role || !process_role || *role == *process_role;
  }
  bool fits(const Holding& holding) const noexcept { return holding.tag == tag && is_of(holding.role); }
  bool operator==(const TagSelector&) const = default;
};

std::string to_text(const TagSelector& selector);

enum class RuleEvent : std::uint8_t { resume, pause, update, commit };
const char* to_text(RuleEvent event) noexcept;

/// What a breach does: an order is refused at once, for waiting would not mend it; memory is waited for.
enum class RuleKind : std::uint8_t { order, memory };
const char* to_text(RuleKind kind) noexcept;

/// One line of policy. All conditions must hold.
struct Rule {
  RuleEvent on = RuleEvent::resume;
  TagSelector tag;
  RuleKind kind = RuleKind::order;
  std::vector<TagSelector> needs_active;
  std::vector<TagSelector> needs_paused;   ///< in all processes of the same devices, or not there
  std::vector<TagSelector> needs_version;  ///< the version of the event's tag, or a later one
  std::vector<TagSelector> needs_written;  ///< not stale and not being written, as far as it is there
  std::vector<TagSelector> bumps;          ///< of the same process: they get a new version with the event
  unsigned number = 0;                     ///< in the file, counted from 1; 0: built in
  unsigned line = 0;                       ///< of the file; 0: none
};

/// "rule 2 (resume weights)"
std::string title_of(const Rule& rule);

/// What is about to happen in this process.
struct PolicyEvent {
  RuleEvent what = RuleEvent::resume;
  TagName tag;
  std::optional<TagName> role;  ///< of this process
  std::uint64_t version = 0;    ///< that the tag has, or is about to get
};

/// A condition that does not hold.
struct Breach {
  const Rule* rule = nullptr;
  TagSelector needed;
  const char* condition = "";         ///< "active", "paused", ...
  std::optional<Holding> in_the_way;  ///< nothing: nobody has the tag
};

/// "rule 2 (resume weights) needs train_optim paused: process 3312 (trainer) has it ACTIVE, 11.4 GiB"
std::string to_text(const Breach& breach);

/// What holds without any configuration: LoRA is not committed and the KV cache not resumed while the weights are
/// stale, and new weights give the KV cache a new version.
std::vector<Rule> built_in_rules();

/// The conditions that do not hold, orders first. The rules outlive the answer.
/// Looks at no clock, file or lock.
std::vector<Breach> breaches(std::span<const Rule> rules, const PolicyEvent& event, const Holdings& holdings);

/// The tags of this process that get a new version with the event.
std::vector<TagName> bumped_by(std::span<const Rule> rules, const PolicyEvent& event);

}  // namespace lowtide

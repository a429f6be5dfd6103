// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "allocator/policy/phases.hpp"
#include "allocator/policy/rules.hpp"

namespace lowtide {

/// What becomes of a breach: nobody looks; it is counted and kept; it is refused, or waited for.
enum class PolicyMode : std::uint8_t { off, observe, enforce };
const char* to_text(PolicyMode mode) noexcept;

/// What the sync policy wants to know of a tag.
struct SyncTag {
  std::optional<TagName> role;  ///< whose tag it is where a rule or a phase does not say
  Refill refill = Refill::none;
};

/// The settings of the sync policy.
struct SyncSettings {
  PolicyMode mode = PolicyMode::observe;
  std::optional<TagName> role;  ///< of this process
  Bytes headroom;               ///< stays free on a device after a resume
  PeakOn peak_on = PeakOn::host;
  std::map<TagName, SyncTag> tags;
  std::vector<Rule> rules;  ///< those of the file; the built-in ones come before them
  std::vector<Phase> phases;
};

}  // namespace lowtide

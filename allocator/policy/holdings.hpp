// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "allocator/core/types.hpp"

namespace lowtide {

/// What a tag is in one process: DESIGN.md's states, that of the tag's worst block.
enum class TagState : std::uint8_t { active, paused_backed, paused_discarded, stale, syncing };

constexpr bool is_paused(TagState state) noexcept {
  return state == TagState::paused_backed || state == TagState::paused_discarded;
}
/// Nothing may be read from it.
constexpr bool is_unwritten(TagState state) noexcept { return state == TagState::stale || state == TagState::syncing; }

/// "ACTIVE", "PAUSED_BACKED" and so on.
const char* to_text(TagState state) noexcept;

/// What one process has of one tag on one device.
struct Holding {
  pid_t pid = 0;  ///< as the process itself sees it
  bool own = false;
  std::optional<TagName> role;  ///< of the process
  TagName tag;
  std::string device;  ///< its key, "" if it has none
  TagState state = TagState::active;
  std::uint64_t version = 0;
  Bytes bytes;                 ///< on the device now
  std::uint64_t instance = 0;  ///< by which the ledger knows the process
};

/// A snapshot of what is known of all processes.
using Holdings = std::vector<Holding>;

}  // namespace lowtide

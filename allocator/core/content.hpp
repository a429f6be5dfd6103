// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "allocator/core/range_set.hpp"
#include "allocator/core/types.hpp"

namespace lowtide {

/// What is known of a block's bytes.
struct BlockContent {
  Freshness freshness = Freshness::valid;
  bool was_stale = false;  ///< before the update that is under way
  bool copied = false;     ///< it is parked, and the backup of its extent holds its bytes
  /// A pause dropped it while its tag had no coverage: nothing of it was held back, so its next update is not looked
  /// at.
  bool dropped_unseen = false;
  bool blank = false;  ///< its last resume brought it back stale and filled it; base/blank.hpp
  /// What of it the extent's `held_back` has, for the end of the update that writes it anew: nothing, what updates are
  /// known not to write, or everything.
  enum class Held : std::uint8_t { nothing, residue, all } held = Held::nothing;
  bool learnt = false;  ///< `residue` is what updates do not write; else that has yet to be found out
  RangeSet residue;
  /// Of a parked block that is not valid: what was written to its copy since.
  RangeSet written;
};

/// The updates of one tag. Outlives the tag's blocks.
struct TagUpdates {
  std::uint64_t version = 0;             ///< of the content that was last committed or declared valid
  std::optional<std::uint64_t> pending;  ///< of the update that is under way
  std::uint64_t committed = 0;
  std::uint64_t aborted = 0;
  std::uint64_t repeated = 0;  ///< calls that found done what they ask for
  std::uint64_t refused = 0;   ///< commits that found memory which was not written
};

}  // namespace lowtide

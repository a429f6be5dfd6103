// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <vector>

#include "allocator/base/blank.hpp"
#include "allocator/core/settings.hpp"
#include "allocator/core/types.hpp"

namespace lowtide::test {

/// What pausing and resuming mean, said as plainly as possible: blocks with bytes, each resident or parked. It knows
/// nothing of extents, handles or drivers.
class ReferenceModel {
 public:
  struct Block {
    Bytes size;
    TagName tag;
    std::size_t device = 0;
    ContextId context;
    std::vector<std::uint8_t> bytes;
    bool parked = false;
    bool discarded = false;  ///< parked without a backup
    bool shared = false;
    // Of the tag that is updated. A word is 8 bytes.
    Freshness freshness = Freshness::valid;
    std::vector<bool> blank;           ///< words that a resume filled and nobody wrote; empty: it filled nothing
    std::vector<bool> held;            ///< words of which a copy is held back
    std::vector<bool> residue;         ///< words that updates do not write
    bool learnt = false;               ///< that is known
    std::vector<std::uint8_t> before;  ///< the bytes of the held words
  };
  using Blocks = std::map<DeviceAddress, Block>;

  explicit ReferenceModel(const CoreSettings& settings) : settings_(settings) {}

  void allocate(DeviceAddress address, Block block) { blocks.emplace(address, std::move(block)); }
  void free(DeviceAddress address) { blocks.erase(address); }
  /// The context dies, and its blocks with it.
  std::vector<DeviceAddress> end_context(ContextId context) {
    std::vector<DeviceAddress> gone;
    for (const auto& [address, block] : blocks) {
      if (block.context == context) gone.push_back(address);
    }
    for (const auto address : gone) blocks.erase(address);
    return gone;
  }

  /// Whether a block that others use, or that is being updated, stands in the way of a pause.
  bool refuses(const std::optional<TagName>& tag) const {
    return std::any_of(blocks.begin(), blocks.end(), [&](const auto& entry) {
      const Block& block = entry.second;
      const bool stands_in_the_way = block.shared || block.freshness == Freshness::syncing;
      return stands_in_the_way && concerns(tag, block) && action(block) != Action::keep;
    });
  }
  void pause(const std::optional<TagName>& tag) {
    for (auto& [address, block] : blocks) {
      if (concerns(tag, block)) park(block);
    }
  }
  void park(Block& block) const {
    if (block.parked || action(block) == Action::keep) return;
    block.parked = true;
    block.discarded = action(block) == Action::discard;
    if (!block.discarded) return;
    if (is_updated(block)) return hold_back(block);
    const bool zero = settings_.tags.at(block.tag).fill == Fill::zero;
    std::fill(block.bytes.begin(), block.bytes.end(), zero ? std::uint8_t{0} : std::uint8_t{0xcd});
  }
  void resume(const std::optional<TagName>& tag) {
    for (auto& [address, block] : blocks) {
      if (!concerns(tag, block) || !block.parked) continue;
      block.parked = block.discarded = false;
      if (block.freshness == Freshness::stale) block.blank.assign(words_of(block), true);
    }
  }

  // Updates of the one tag that has them, whose blocks are of whole words.
  bool is_updated(const Block& block) const { return settings_.tags.at(block.tag).coverage == Coverage::learn; }
  static std::size_t words_of(const Block& block) { return block.size.value / 8; }
  void hold_back(Block& block) const {
    block.blank.clear();
    if (block.freshness != Freshness::valid) return;  // what is held back already stays
    block.freshness = Freshness::stale;
    block.held = block.learnt ? block.residue : std::vector<bool>(words_of(block), true);
    block.before = block.bytes;
  }
  static void write(Block& block, Bytes offset, Bytes size) {
    if (block.blank.empty()) return;
    for (auto word = offset.value / 8; word < (offset + size).value / 8; ++word) block.blank[word] = false;
  }
  /// Whether a word of the tag is blank of which nothing is held back.
  bool lacks(const TagName& tag) const {
    return std::any_of(blocks.begin(), blocks.end(), [&](const auto& entry) {
      const Block& block = entry.second;
      for (std::size_t word = 0; word < block.blank.size(); ++word) {
        if (block.tag == tag && block.blank[word] && (block.held.empty() || !block.held[word])) return true;
      }
      return false;
    });
  }
  void begin(const TagName& tag) { set_freshness(tag, Freshness::syncing); }
  /// An abort, or a commit that is refused, after which nothing counts as known.
  void end(const TagName& tag, bool refused) {
    for (auto& [address, block] : blocks) {
      if (block.tag == tag && refused && !block.blank.empty()) block.learnt = false;
    }
    set_freshness(tag, Freshness::stale);
  }
  void commit(const TagName& tag) {
    for (auto& [address, block] : blocks) {
      if (block.tag == tag) put_back(address, block);
    }
    set_freshness(tag, Freshness::valid);
  }
  /// What is not held back stays as the resume filled it.
  static void put_back(DeviceAddress address, Block& block) {
    if (block.residue.empty()) block.residue.assign(words_of(block), false);
    const bool all = std::all_of(block.held.begin(), block.held.end(), [](bool held) { return held; });
    for (std::size_t word = 0; word < block.blank.size(); ++word) {
      if (!block.blank[word]) continue;
      const bool held = !block.held.empty() && block.held[word];
      auto bytes = blank_word(address.value + 8 * word);
      if (held) std::memcpy(&bytes, &block.before[8 * word], 8);
      std::memcpy(&block.bytes[8 * word], &bytes, 8);
      if (held) block.residue[word] = true;
    }
    if (!block.blank.empty() && !block.held.empty() && all) block.learnt = true;
    block.blank.clear();
    block.held.clear();
  }
  void set_freshness(const TagName& tag, Freshness freshness) {
    for (auto& [address, block] : blocks) {
      if (block.tag == tag) block.freshness = freshness;
    }
  }

  static bool concerns(const std::optional<TagName>& tag, const Block& block) { return !tag || *tag == block.tag; }
  Action action(const Block& block) const { return settings_.tags.at(block.tag).pause; }

  Blocks blocks;

 private:
  const CoreSettings& settings_;
};

}  // namespace lowtide::test

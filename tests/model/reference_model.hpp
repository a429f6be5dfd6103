// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <vector>

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

  /// Whether a block that others use stands in the way of a pause.
  bool refuses(const std::optional<TagName>& tag) const {
    return std::any_of(blocks.begin(), blocks.end(), [&](const auto& entry) {
      return entry.second.shared && concerns(tag, entry.second) && action(entry.second) != Action::keep;
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
    const bool zero = settings_.tags.at(block.tag).fill == Fill::zero;
    std::fill(block.bytes.begin(), block.bytes.end(), zero ? std::uint8_t{0} : std::uint8_t{0xcd});
  }
  void resume(const std::optional<TagName>& tag) {
    for (auto& [address, block] : blocks) {
      if (concerns(tag, block)) block.parked = block.discarded = false;
    }
  }

  static bool concerns(const std::optional<TagName>& tag, const Block& block) { return !tag || *tag == block.tag; }
  Action action(const Block& block) const { return settings_.tags.at(block.tag).pause; }

  Blocks blocks;

 private:
  const CoreSettings& settings_;
};

}  // namespace lowtide::test

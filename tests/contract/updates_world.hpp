// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "tests/catch.hpp"
#include "tests/contract/world.hpp"

namespace lowtide::test {

/// A world whose blocks have the tag "weights".
class UpdatesWorld {
 public:
  explicit UpdatesWorld(const BackendKind& kind = *backend_kinds.front(),
                        const cuda::Driver& driver = SimulatedDriver::instance().driver())
      : world(driver, 1, {}, std::make_unique<DiskCalls>(), kind) {
    world.blocks.reserve(16);
  }

  TagSettings& settings() { return world.settings.tags[weights]; }
  World::KnownBlock& add(Bytes size, Freshness freshness = Freshness::valid) {
    const auto address = world.table.allocate(world.backend(), weights, world.context(), size, {{}, freshness});
    REQUIRE(address);
    return world.adopt(*address, "weights", size);
  }
  Status begin(std::uint64_t version) { return world.transitions.begin_update(weights, version); }
  Status commit(std::uint64_t version) { return world.transitions.commit_update(weights, version, world.settings); }
  Status abort() { return world.transitions.abort_update(weights); }
  Status mark_valid(std::uint64_t version) { return world.transitions.mark_valid(weights, version, world.settings); }
  Status drop_backup() { return world.transitions.drop_backup(weights, world.settings); }
  Result<TransitionReport> pause(Action action) {
    settings().pause = action;
    return world.pause(weights);
  }
  Result<TransitionReport> resume() { return world.resume(weights); }
  /// Writes all of a parked block's backup.
  void refill(World::KnownBlock& block) {
    for (std::size_t i = 0; i < block.bytes.size(); ++i) block.bytes[i] = static_cast<std::uint8_t>(i * 31 + 7);
    REQUIRE(world.table.write_backup(block.range(), block.bytes.data()));
    block.known = true;
  }

  TagUpdates updates() const { return world.table.updates(weights).value_or(TagUpdates{}); }
  /// Of the whole tag: "valid", "stale parked", ... with its version.
  std::string state() const {
    const auto regions = world.table.regions();
    const auto& region = regions.front();
    std::string text = to_text(region.freshness);
    if (region.parked.value > 0) text += region.backup.value > 0 ? " backed" : " parked";
    return text + " v" + std::to_string(updates().version);
  }
  Freshness freshness(const World::KnownBlock& block) const { return world.table.find(block.address)->freshness; }

  const TagName weights = tag_name("weights");
  World world;
};

}  // namespace lowtide::test

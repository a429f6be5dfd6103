// SPDX-License-Identifier: Apache-2.0
// Blocks whose address could not be had back, and those whose address somebody else has.
#include "allocator/core/block_table.hpp"

namespace lowtide {

bool BlockTable::is_taken(DeviceAddress address) const {
  Backend* backend = nullptr;
  {
    const std::lock_guard lock(mutex_);
    // Others' memory may begin anywhere in a parked extent, which has a block beside that place.
    auto block = blocks_.upper_bound(address);
    const auto is_around = [&] { return block->second.extent->range().contains(address); };
    if (block == blocks_.end() || !is_around()) {
      if (block == blocks_.begin()) return false;
      --block;
    }
    if (!is_around() || block->second.extent->resident) return false;
    backend = &block->second.extent->region.backend;
  }
  return !backend->capabilities().stable_address && backend->is_taken(address);
}

Status BlockTable::send_elsewhere(Extent& extent) {
  Region& region = extent.region;
  const Bytes size = extent.range().size;
  const auto start = region.backend.reserve(size, region.context);
  if (!start) return fail(start.error());
  const AddressRange range{*start, size};
  const auto add = [&] {
    const std::lock_guard lock(mutex_);
    if (!managed_.add(range)) return false;
    try {
      region.add_arena(range);
      region.take_arena(range.start, size);
      return true;
    } catch (...) {
      region.drop_arena(range.start);
      managed_.remove(range.start);
      return false;
    }
  };
  if (add()) {
    extent.go_to(range.start);
    return {};
  }
  (void)region.backend.release_reservation(range);
  return fail(Code::host_budget, "the host has no memory for the books of blocks that move");
}

void BlockTable::call_home(Extent& extent) noexcept {
  const AddressRange place = extent.place();
  (void)extent.region.backend.release_reservation(place);
  const std::lock_guard lock(mutex_);
  extent.region.drop_arena(place.start);
  managed_.remove(place.start);
  extent.come_home();
}

void BlockTable::settle_elsewhere(Extent& extent, std::vector<BlockMove>& moves) noexcept {
  const AddressRange from = extent.range();
  {
    const std::lock_guard lock(mutex_);
    extent.region.rekey_extent(extent);
    for (Blocks* blocks : {&blocks_, &deferred_}) {
      // New addresses may lie in the old range: no block is visited twice.
      Blocks moved;
      for (auto block = blocks->lower_bound(from.start); block != blocks->end() && block->first < from.end();) {
        if (block->second.extent != &extent) {
          ++block;
          continue;
        }
        auto node = blocks->extract(block++);
        const BlockMove move{extent.region.label.tag, node.key(), extent.range().start + (node.key() - from.start),
                             node.mapped().range.size};
        if (blocks == &blocks_) moves.push_back(move);
        node.key() = node.mapped().range.start = move.to;
        moved.insert(moved.end(), std::move(node));
      }
      blocks->merge(moved);
    }
    managed_.remove(from.start);
  }
  (void)extent.region.backend.release_reservation(from);
}

Status BlockTable::park(Extent& extent) {
  auto status = extent.park(extent.region.backend);
  if (!extent.holds_memory() && extent.is_elsewhere()) call_home(extent);
  return status;
}

}  // namespace lowtide

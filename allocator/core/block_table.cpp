// SPDX-License-Identifier: Apache-2.0
#include "allocator/core/block_table.hpp"

#include <cinttypes>

#include "allocator/base/log.hpp"

namespace lowtide {
namespace {

/// Larger requests are answered without asking: rounding them up would wrap, and no device is that large.
constexpr Bytes most_bytes{1ull << 56};

}  // namespace

Result<DeviceAddress> BlockTable::allocate(Backend& backend, const Label& label, ContextId context, Bytes size,
                                           const Birth& birth) {
  if (size > most_bytes) {
    return fail(Error::format(Code::device_memory, "no device holds %" PRIu64 " bytes", size.value));
  }
  for (;;) {
    if (const auto placed = place(backend, label, context, size, birth)) {
      if (placed->fresh) {
        if (auto status = furnish(*placed); !status) return fail(status.error());
      }
      return placed->address;
    }
    if (auto status = grow(backend, label, context, size); !status) return fail(status.error());
  }
}

std::optional<BlockTable::Placed> BlockTable::place(Backend& backend, const Label& label, ContextId context, Bytes size,
                                                    const Birth& birth) {
  // Everything that may throw comes first: a node for the block, then its place.
  Blocks prepared;
  prepared.emplace(DeviceAddress{}, Block{{{}, size}, nullptr, context, false, birth.origin, {birth.freshness}});
  auto node = prepared.extract(prepared.begin());

  const std::lock_guard lock(mutex_);
  const auto placed = place_block(region_of(backend, label, context), size);
  if (!placed) return std::nullopt;
  node.key() = node.mapped().range.start = placed->address;
  node.mapped().extent = placed->extent;
  const auto updates = updates_.find(label.tag);
  if (updates != updates_.end() && updates->second.pending) node.mapped().content.freshness = Freshness::syncing;
  ++placed->extent->blocks;
  placed->extent->requested += size;
  blocks_.insert(std::move(node));
  return placed;
}

std::optional<BlockTable::Placed> BlockTable::place_block(Region& region, Bytes size) {
  const bool is_small = size < region.shared_extent();
  const Bytes alone = round_up(size, region.granule());
  const Bytes slot = is_small ? round_up(size, block_alignment) : alone;
  // Also where blocks of a common extent were freed.
  if (const auto shared = region.place_in_shared(slot)) return Placed{shared->extent, shared->range.start, false};
  const Bytes whole = region.extent_size(size);
  Extent* extent = region.add_extent(whole, next_order_++);
  bool has_slots = is_small || alone < whole;
  if (extent == nullptr && has_slots && region.reserves_each()) {
    // No more could be had.
    extent = region.add_extent(alone, next_order_++);
    has_slots = false;
  }
  if (extent == nullptr) return std::nullopt;
  if (!has_slots) return Placed{extent, extent->range().start, true};
  try {
    extent->slots = std::make_unique<SlotMap>(extent->range());
    const auto start = extent->slots->take(slot)->start;
    region.note_gaps(*extent);
    return Placed{extent, start, true};
  } catch (...) {
    region.remove_extent(*extent);
    throw;
  }
}

Status BlockTable::grow(Backend& backend, const Label& label, ContextId context, Bytes size) {
  const Bytes granule = backend.capabilities().granularity;
  Bytes step = [&] {
    const std::lock_guard lock(mutex_);
    return region_of(backend, label, context).arena_step(size);
  }();
  auto start = backend.reserve(step, context);
  if (!start && step > round_up(size, granule)) {
    // A host that limits its address space (ulimit -v), or a full device, still gives what was asked for.
    step = round_up(size, granule);
    start = backend.reserve(step, context);
  }
  if (!start) return fail(start.error());
  const AddressRange range{*start, step};
  try {
    const std::lock_guard lock(mutex_);
    Region& region = region_of(backend, label, context);
    region.add_arena(range);
    if (managed_.add(range)) return {};
    region.drop_arena(range.start);
  } catch (...) {
    (void)backend.release_reservation(range);
    throw;
  }
  (void)backend.release_reservation(range);
  return fail(Code::host_budget, "the host has no memory for the list of address ranges, or 65536 are reserved");
}

Status BlockTable::furnish(const Placed& placed) {
  Extent& extent = *placed.extent;
  Backend& backend = extent.region.backend;
  std::uint64_t version = 0;
  try {
    std::vector<DeviceId> peers;
    for (bool furnished = false; !furnished;) {
      {
        const std::lock_guard lock(mutex_);
        version = peers_version_;
        peers = accessors_of(backend.device());
      }
      const auto status = [&] {
        const RightOfWay::Pass passing(right_of_way_);
        return extent.climb(backend, peers);
      }();
      if (!status) {
        abandon(placed);
        return status;
      }
      // A peer that was enabled while the extent climbed was not told of it: once more.
      const std::lock_guard lock(mutex_);
      furnished = version == peers_version_;
      if (furnished) extent.busy = false;  // from here on it may be somebody else's
    }
  } catch (...) {
    abandon(placed);
    throw;
  }
  return {};
}

void BlockTable::abandon(const Placed& placed) noexcept {
  Extent& extent = *placed.extent;
  (void)extent.descend(extent.region.backend);
  if (extent.empty()) end_reservation(extent);
  const std::lock_guard lock(mutex_);
  blocks_.erase(placed.address);
  extent.blocks = 0;
  extent.requested = {};
  extent.busy = false;
  // What the driver would not take back stays on the books without a block; the next pause tries again.
  if (extent.empty()) remove(extent);
}

void BlockTable::end_reservation(Extent& extent) noexcept {
  if (extent.region.reserves_each()) (void)extent.region.backend.release_reservation(extent.range());
}

void BlockTable::remove(Extent& extent) noexcept {
  if (extent.region.reserves_each()) managed_.remove(extent.range().start);
  extent.region.remove_extent(extent);
}

Region& BlockTable::region_of(Backend& backend, const Label& label, ContextId context) {
  if (!backend.capabilities().is_plain) context = {};
  for (auto& region : regions_) {
    if (region.label == label && &region.backend == &backend && region.context == context) return region;
  }
  return regions_.emplace_back(label, backend, context);
}

Result<BlockTable::Freed> BlockTable::free(DeviceAddress address) {
  if (!is_managed(address) || is_taken(address)) return Freed::foreign;
  const auto quiet = captures_.block();  // a synchronise would break a capture that begins meanwhile
  std::unique_lock lock(mutex_);
  const bool dropped = dropped_.erase(address) > 0;
  const auto block = blocks_.find(address);
  if (block == blocks_.end() || block->second.leaving) {
    if (dropped) return Freed::done;
    // The driver may give an address on while the block that had it is on its way out.
    const bool given_on = block != blocks_.end() && block->second.extent->region.reserves_each();
    if (given_on || !is_managed(address)) return Freed::foreign;
    return fail(Error::format(Code::invalid, "0x%" PRIx64 " is not the start of a live block", address.value));
  }
  if (!quiet) {
    deferred_.insert(blocks_.extract(block));
    return Freed::done;
  }
  if (auto status = carry_out(blocks_, block, Drop::free, lock); !status) return fail(status.error());
  return Freed::done;
}

Status BlockTable::carry_out(Blocks& table, Blocks::iterator block, Drop why, std::unique_lock<std::mutex>& lock) {
  Block& freed = block->second;
  if (!freed.extent->busy && (freed.extent->resident || !freed.extent->empty())) {
    Backend& backend = freed.extent->region.backend;
    freed.leaving = true;
    lock.unlock();
    auto status = backend.synchronise();
    lock.lock();
    freed.leaving = false;
    if (!status && why != Drop::context) return status;
  }
  if (!freed.extent->busy) return detach(table, block, why, lock);  // which may be another extent now
  if (&table != &deferred_) deferred_.insert(table.extract(block));
  return {};
}

Status BlockTable::detach(Blocks& table, Blocks::iterator block, Drop why, std::unique_lock<std::mutex>& lock) {
  Extent& extent = *block->second.extent;
  if (extent.blocks > 1) {
    --extent.blocks;
    extent.requested -= block->second.range.size;
    extent.slots->give_back(block->first);
    extent.region.note_gaps(extent);
    forget(table, block, why);
    return {};
  }
  extent.busy = block->second.leaving = true;
  lock.unlock();
  auto status = extent.host ? extent.host->clear_scratch() : Status();
  if (status) {
    const RightOfWay::Pass passing(right_of_way_);
    status = extent.descend(extent.region.backend);
  }
  const bool stays = !status && extent.accessible();
  if (!stays) {  // off the lock: their host memory may go back through the driver
    extent.backup.reset();
    extent.held_back.reset();
    extent.retained.reset();
    drop_host_backing(extent);
    if (!extent.holds_memory() && extent.is_elsewhere()) call_home(extent);
    if (extent.empty()) end_reservation(extent);
  }
  lock.lock();
  extent.busy = block->second.leaving = false;
  if (stays) return status;
  forget(table, block, why);
  extent.blocks = 0;
  extent.requested = {};
  if (extent.empty()) remove(extent);
  return {};
}

void BlockTable::forget(Blocks& table, Blocks::iterator block, Drop why) {
  // An address that is no longer kept may be anybody's by then: the driver knows what to answer.
  if (why == Drop::context && !block->second.extent->region.reserves_each())
    dropped_.insert(table.extract(block));
  else
    table.erase(block);
}

void BlockTable::finish_frees() noexcept {
  for (DeviceAddress next{};;) {
    const auto quiet = captures_.block();
    if (!quiet) return;
    std::unique_lock lock(mutex_);
    auto block = deferred_.lower_bound(next);
    while (block != deferred_.end() && (block->second.leaving || block->second.extent->busy)) ++block;
    if (block == deferred_.end()) return;
    next = block->first + Bytes{1};
    const auto status = carry_out(deferred_, block, Drop::free, lock);
    lock.unlock();
    if (!status) {
      log(LogLevel::warning, "a block that was freed during a pause or a capture could not be given back yet: %s",
          status.error().message());
    }
  }
}

std::optional<BlockView> BlockTable::find(DeviceAddress address) const {
  if (!is_managed(address)) return std::nullopt;
  const std::lock_guard lock(mutex_);
  auto after = blocks_.upper_bound(address);
  if (after == blocks_.begin()) return std::nullopt;
  const Block& block = std::prev(after)->second;
  if (!block.range.contains(address)) return std::nullopt;
  const Extent& extent = *block.extent;
  const bool is_plain = extent.region.backend.capabilities().is_plain;
  const bool is_large = block.range.size >= extent.region.shared_extent();
  const bool begins_it = is_plain && is_large && block.range.start == extent.range().start;
  return BlockView{block.range,     extent.region.backend.device(), block.context,
                   extent.resident, block.content.freshness,        extent.slots == nullptr || begins_it,
                   is_plain};
}

BlockNote BlockTable::note_of(const Block& block) {
  const Region& region = block.extent->region;
  return {region.label.tag, region.backend.device(), block.context, block.range};
}

std::optional<BlockNote> BlockTable::block_at(DeviceAddress address) const {
  if (!is_managed(address)) return std::nullopt;
  const std::lock_guard lock(mutex_);
  const auto block = blocks_.find(address);
  return block == blocks_.end() ? std::nullopt : std::optional(note_of(block->second));
}

std::vector<BlockNote> BlockTable::blocks_of(ContextId context) const {
  std::vector<BlockNote> notes;
  const std::lock_guard lock(mutex_);
  for (const auto& [address, block] : blocks_) {
    if (block.context == context) notes.push_back(note_of(block));
  }
  return notes;
}

void BlockTable::mark_shared(DeviceAddress address, const char* how) {
  const std::lock_guard lock(mutex_);
  auto after = blocks_.upper_bound(address);
  if (after == blocks_.begin()) return;
  const Block& block = std::prev(after)->second;
  if (block.extent->range().contains(address)) block.extent->shared_by = how;
}

void BlockTable::drop_context(ContextId context) {
  for (DeviceAddress next{};;) {
    const auto quiet = captures_.block();
    std::unique_lock lock(mutex_);
    auto block = blocks_.lower_bound(next);
    while (block != blocks_.end() && (block->second.leaving || block->second.context != context)) ++block;
    if (block == blocks_.end()) return;
    next = block->first + Bytes{1};
    if (!quiet) {
      deferred_.insert(blocks_.extract(block));
      continue;
    }
    const auto status = carry_out(blocks_, block, Drop::context, lock);
    lock.unlock();
    if (!status) {
      log(LogLevel::warning, "a block of a destroyed context could not be given back: %s", status.error().message());
    }
  }
}

Status BlockTable::set_peer(DeviceId owner, DeviceId accessor, bool enabled) {
  std::vector<DeviceId> peers;
  {
    const std::lock_guard lock(mutex_);
    int& contexts = peers_[owner][accessor];
    contexts += enabled ? 1 : contexts > 0 ? -1 : 0;
    ++peers_version_;
    peers = accessors_of(owner);
  }
  // Access that was given is not taken away again: it can only make a program work that would have failed.
  if (!enabled) return {};
  auto claimed = claim(std::nullopt, [](const Extent& extent) {
    return extent.accessible() || (extent.host && extent.host->in_place());
  });
  for (Extent* extent : claimed.extents) {
    if (extent->region.backend.device() != owner) continue;
    if (!extent->accessible()) {
      if (auto status = extent->host->set_peers(peers); !status) return status;
      continue;
    }
    if (auto status = extent->set_access(extent->region.backend, peers); !status) return status;
  }
  return {};
}

std::vector<DeviceId> BlockTable::peers_of(DeviceId owner) const {
  const std::lock_guard lock(mutex_);
  return accessors_of(owner);
}

std::vector<DeviceId> BlockTable::accessors_of(DeviceId owner) const {
  std::vector<DeviceId> accessors;
  const auto found = peers_.find(owner);
  if (found == peers_.end()) return accessors;
  for (const auto& [accessor, contexts] : found->second) {
    if (contexts > 0) accessors.push_back(accessor);
  }
  return accessors;
}

}  // namespace lowtide

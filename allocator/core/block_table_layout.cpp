// SPDX-License-Identifier: Apache-2.0
// How blocks lie in extents: what a pause saves of them, and how a resume lays them out anew.
#include <algorithm>

#include "allocator/core/block_table.hpp"
#include "allocator/core/neighbours.hpp"

namespace lowtide {
namespace {

/// A common extent gets no larger: the cost of a handle of this size is lost beside that of the bytes in it.
constexpr Bytes most_joined = 64_MiB;
/// Larger ones stay alone, and with them their memory, which is free at once when the program frees them.
constexpr Bytes largest_part = 8_MiB;
/// Bytes of no block that are copied along, where leaving them out would cost a copy of its own.
constexpr Bytes ignored_gap = 64_KiB;

/// What a block's place in an extent takes up.
Bytes place_size(Bytes requested, Bytes granule) {
  return requested >= granule ? round_up(requested, granule) : round_up(requested, block_alignment);
}

bool may_be_part(const Extent& extent) {
  return extent.slots ? extent.range().size < most_joined : extent.range().size <= largest_part;
}

/// Parked, idle but for the claim, and with nothing of the driver's behind it.
bool can_be_moved(const Extent& extent) {
  return extent.blocks > 0 && !extent.resident && extent.empty() && extent.shared_by == nullptr &&
         !(extent.backup && extent.held_back);
}

/// The one copy that an extent which can be moved has, or the place of one.
std::unique_ptr<Backup>& copy_of(Extent& extent) { return extent.held_back ? extent.held_back : extent.backup; }

/// Slots of which exactly `places` are used.
std::unique_ptr<SlotMap> slots_with(AddressRange range, std::span<const AddressRange> places) {
  auto slots = std::make_unique<SlotMap>(range);
  for (const auto& place : places) slots->take_at(place);
  return slots;
}

/// The first granules of `range` that hold nothing of `places`; an empty range if there are none.
AddressRange first_hole(AddressRange range, std::span<const AddressRange> places, Bytes granule) {
  const auto up = [&](DeviceAddress address) { return range.start + round_up(address - range.start, granule); };
  DeviceAddress end = range.start;
  for (const auto& place : places) {
    const DeviceAddress from = up(end);
    const DeviceAddress until{place.start.value - (place.start - range.start).value % granule.value};
    if (until > from) return {from, until - from};
    end = place.end();
  }
  const DeviceAddress from = up(end);
  return {from, from < range.end() ? range.end() - from : Bytes{}};
}

/// How many of `extents`, from the first on, can become one. At least 1.
std::size_t joinable(std::span<Extent* const> extents) {
  const auto run = extents.first(run_length(extents, {extents.size(), most_joined}));
  const bool backed = run.front()->backup != nullptr;
  const bool holds_back = run.front()->held_back != nullptr;
  const auto end = std::find_if_not(run.begin(), run.end(), [&](const Extent* extent) {
    return can_be_moved(*extent) && may_be_part(*extent) && (extent->backup != nullptr) == backed &&
           (extent->held_back != nullptr) == holds_back;
  });
  return std::max<std::size_t>(1, static_cast<std::size_t>(end - run.begin()));
}

/// Memory of common extents that no block has, once those that are parked have theirs back.
Bytes slack_of(const Region& region) {
  Bytes slack;
  for (const auto& [start, extent] : region.extents) {
    if (extent.slots) slack += extent.slots->free_bytes();
  }
  return slack;
}

}  // namespace

std::vector<AddressRange> BlockTable::content_of(const Extent& extent, bool all) const {
  const std::lock_guard lock(mutex_);
  std::vector<AddressRange> content;
  bool may_join = false;
  const auto end = blocks_.lower_bound(extent.range().end());
  for (auto block = blocks_.lower_bound(extent.range().start); block != end; ++block) {
    const AddressRange& range = block->second.range;
    const bool wanted = all || block->second.content.freshness == Freshness::valid;
    if (wanted && may_join && range.start - content.back().end() < ignored_gap)
      content.back().size = range.end() - content.back().start;
    else if (wanted)
      content.push_back(range);
    may_join = wanted;  // garbage is not copied along
  }
  return content;
}

std::vector<AddressRange> BlockTable::places_in(AddressRange range, Bytes granule) const {
  std::vector<AddressRange> places;
  for_each_block(*this, range, [&](const Block& block) {
    places.push_back({block.range.start, place_size(block.range.size, granule)});
  });
  std::sort(places.begin(), places.end(), [](const auto& a, const auto& b) { return a.start < b.start; });
  return places;
}

void BlockTable::move_blocks(AddressRange range, Extent& extent) noexcept {
  for_each_block(*this, range, [&](Block& block) { block.extent = &extent; });
}

void BlockTable::recount(Extent& extent, std::unique_ptr<SlotMap> slots) noexcept {
  extent.slots = std::move(slots);
  extent.region.note_gaps(extent);
  extent.blocks = 0;
  extent.requested = {};
  for_each_block(*this, extent.range(), [&](const Block& block) {
    ++extent.blocks;
    extent.requested += block.range.size;
  });
}

Extent& BlockTable::split(Extent& extent, DeviceAddress at) {
  Region& region = extent.region;
  const AddressRange whole = extent.range();
  const AddressRange left{whole.start, at - whole.start};
  const AddressRange right{at, whole.end() - at};
  auto left_slots = slots_with(left, places_in(left, region.granule()));
  auto right_slots = slots_with(right, places_in(right, region.granule()));
  Extent& rest = region.split_extent(extent, at);
  try {
    if (extent.backup) rest.backup = extent.backup->split(left.size);
    if (extent.held_back) rest.held_back = extent.held_back->split(left.size);
  } catch (...) {
    region.join_extents(whole);
    throw;
  }
  rest.resident = false;
  move_blocks(right, rest);
  recount(extent, std::move(left_slots));
  recount(rest, std::move(right_slots));
  return rest;
}

/// Of the extent at `index`: the granules without a block leave it, and what lies between them becomes extents of its
/// own, which are put after it. Their backups are put on `dropped`.
void BlockTable::leave_out_freed(std::vector<Extent*>& extents, std::size_t index,
                                 std::vector<std::unique_ptr<Backup>>& dropped) {
  Extent* extent = extents[index];
  Region& region = extent->region;
  for (;;) {
    const AddressRange range = extent->range();
    const auto hole = first_hole(range, places_in(range, region.granule()), region.granule());
    if (hole.size.value == 0) return;
    extents.reserve(extents.size() + 2);  // a piece that is not on the list would stay busy
    dropped.reserve(dropped.size() + 1);
    Extent* empty = extent;
    if (hole.start > range.start) {
      empty = &split(*extent, hole.start);
      extents.insert(extents.begin() + static_cast<std::ptrdiff_t>(++index), empty);
    }
    const bool more = hole.end() < range.end();
    if (more) {
      extent = &split(*empty, hole.end());
      extents[index] = extent;
    } else {
      extents.erase(extents.begin() + static_cast<std::ptrdiff_t>(index));
    }
    dropped.push_back(std::move(copy_of(*empty)));
    region.remove_extent(*empty);
    if (!more) return;
  }
}

bool BlockTable::join(std::span<Extent* const> neighbours) {
  Extent& first = *neighbours.front();
  const AddressRange whole{first.range().start, neighbours.back()->range().end() - first.range().start};
  auto slots = slots_with(whole, places_in(whole, first.region.granule()));
  if (copy_of(first)) {
    std::vector<Backup::Neighbour> others;
    others.reserve(neighbours.size() - 1);
    for (Extent* next : neighbours.subspan(1))
      others.push_back({copy_of(*next).get(), next->range().start - whole.start});
    if (!copy_of(first)->join(others)) return false;
  }
  move_blocks(whole, first);
  first.region.join_extents(whole);
  recount(first, std::move(slots));
  return true;
}

void BlockTable::leave_out_freed(Claim& claim) {
  // Ended off the lock: their memory may go back through the driver, and their files through the disk.
  std::vector<std::unique_ptr<Backup>> dropped;
  const std::lock_guard lock(mutex_);
  for (std::size_t i = 0; i < claim.extents.size(); ++i) {
    const Extent& extent = *claim.extents[i];
    const bool may_split = extent.slots && !extent.region.reserves_each();
    if (may_split && can_be_moved(extent)) leave_out_freed(claim.extents, i, dropped);
  }
}

void BlockTable::lay_out(Claim& claim, Bytes most_slack) {
  leave_out_freed(claim);
  const std::lock_guard lock(mutex_);
  join_neighbours(claim.extents, most_slack);
}

void BlockTable::join_neighbours(std::vector<Extent*>& extents, Bytes most_slack) {
  std::size_t done = 0;
  std::size_t next = 0;
  const Region* region = nullptr;
  bool may_join = false;
  try {
    while (next < extents.size()) {
      if (&extents[next]->region != region) {
        region = &extents[next]->region;
        may_join = !region->reserves_each() && slack_of(*region) <= most_slack;
      }
      std::size_t count = may_join ? joinable(std::span(extents).subspan(next)) : 1;
      // Of backups that cannot be one, some can.
      while (count > 1 && !join(std::span(extents).subspan(next, count))) count /= 2;
      extents[done++] = extents[next];
      next += count;
    }
  } catch (...) {
    extents.erase(extents.begin() + static_cast<std::ptrdiff_t>(done),
                  extents.begin() + static_cast<std::ptrdiff_t>(next));
    throw;
  }
  extents.resize(done);
}

}  // namespace lowtide

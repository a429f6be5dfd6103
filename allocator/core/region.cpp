// SPDX-License-Identifier: Apache-2.0
#include "allocator/core/region.hpp"

#include <algorithm>

namespace lowtide {

bool ManagedRanges::add(AddressRange range) noexcept {
  // Writers hold the block table's lock; the release makes the entry visible before the count that covers it.
  const auto index = count_.load(std::memory_order_relaxed);
  if (index == entries_.size()) return false;
  entries_[index].start.store(range.start.value, std::memory_order_relaxed);
  entries_[index].end.store(range.end().value, std::memory_order_relaxed);
  count_.store(index + 1, std::memory_order_release);
  return true;
}

bool ManagedRanges::contains(DeviceAddress address) const noexcept {
  const auto count = count_.load(std::memory_order_acquire);
  for (std::size_t i = 0; i < count; ++i) {
    if (entries_[i].start.load(std::memory_order_relaxed) <= address.value &&
        address.value < entries_[i].end.load(std::memory_order_relaxed)) {
      return true;
    }
  }
  return false;
}

Bytes Region::arena_step(Bytes size, Bytes granule) noexcept {
  // Address space costs nothing until memory is behind it, and each further range lengthens ManagedRanges::contains.
  return std::max(round_up(size, granule), round_up(64_GiB, granule));
}

Extent* Region::add_extent(Bytes size) {
  for (auto& arena : arenas_) {
    const auto range = arena.take(size);
    if (!range) continue;
    try {
      return &extents.try_emplace(range->start, *this, *range).first->second;
    } catch (...) {
      arena.give_back(range->start);
      throw;
    }
  }
  return nullptr;
}

SlotMap& Region::arena_of(DeviceAddress address) noexcept {
  return *std::find_if(arenas_.begin(), arenas_.end(), [&](const SlotMap& a) { return a.range().contains(address); });
}

void Region::remove_extent(Extent& extent) noexcept {
  const auto start = extent.range().start;
  arena_of(start).give_back(start);
  extents.erase(start);
}

void Region::join_extents(AddressRange range) noexcept {
  arena_of(range.start).join_used(range);
  const auto first = extents.find(range.start);
  extents.erase(std::next(first), extents.lower_bound(range.end()));
  first->second.resize(range.size);
}

Extent& Region::split_extent(Extent& extent, DeviceAddress at) {
  const AddressRange rest{at, extent.range().end() - at};
  const auto made = extents.try_emplace(at, *this, rest).first;
  try {
    arena_of(at).split_used(extent.range().start, at);
  } catch (...) {
    extents.erase(made);
    throw;
  }
  extent.resize(at - extent.range().start);
  return made->second;
}

std::optional<Region::Place> Region::place_in_shared(Bytes size) {
  if (size > most_gap_) return std::nullopt;
  bool all_seen = true;
  const auto first = extents.lower_bound(last_shared_);
  auto next = first;
  for (std::size_t looked_at = 0; looked_at < extents.size(); ++looked_at, ++next) {
    if (next == extents.end()) next = extents.begin();
    Extent& extent = next->second;
    // One without a block waits for its memory to be taken back.
    if (!extent.slots || extent.blocks == 0) continue;
    if (extent.busy || !extent.resident) {
      all_seen = false;
      continue;
    }
    if (const auto range = extent.slots->take(size)) {
      last_shared_ = next->first;
      return Place{&extent, *range};
    }
  }
  if (all_seen) most_gap_ = size - Bytes{1};
  return std::nullopt;
}

}  // namespace lowtide

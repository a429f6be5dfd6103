// SPDX-License-Identifier: Apache-2.0
#include "allocator/core/region.hpp"

#include <algorithm>
#include <new>
#include <tuple>

namespace lowtide {

ManagedRanges::~ManagedRanges() {
  for (auto& chunk : chunks_) delete chunk.load(std::memory_order_relaxed);
}

template <class Found>
ManagedRanges::Entry* ManagedRanges::find(Found found) const noexcept {
  const auto count = count_.load(std::memory_order_acquire);
  for (std::size_t i = 0; i < count; ++i) {
    Entry& entry =
        (*chunks_[i / std::tuple_size_v<Chunk>].load(std::memory_order_relaxed))[i % std::tuple_size_v<Chunk>];
    if (found(entry.start.load(std::memory_order_relaxed), entry.end.load(std::memory_order_relaxed))) return &entry;
  }
  return nullptr;
}

bool ManagedRanges::add(AddressRange range) noexcept {
  Entry* entry = nullptr;
  if (removed_ > 0) {
    entry = find([](std::uint64_t, std::uint64_t end) { return end == 0; });
    --removed_;
  }
  const auto index = count_.load(std::memory_order_relaxed);
  if (entry == nullptr) {
    if (index == most) return false;
    auto& chunk = chunks_[index / std::tuple_size_v<Chunk>];
    if (chunk.load(std::memory_order_relaxed) == nullptr) {
      auto* const made = new (std::nothrow) Chunk{};
      if (made == nullptr) return false;
      chunk.store(made, std::memory_order_relaxed);
    }
    entry = &(*chunk.load(std::memory_order_relaxed))[index % std::tuple_size_v<Chunk>];
    entry->start.store(range.start.value, std::memory_order_relaxed);
    entry->end.store(range.end().value, std::memory_order_relaxed);
    count_.store(index + 1, std::memory_order_release);  // the entry, and its chunk, are visible before they count
    return true;
  }
  entry->start.store(range.start.value, std::memory_order_relaxed);
  entry->end.store(range.end().value, std::memory_order_release);
  return true;
}

void ManagedRanges::remove(DeviceAddress start) noexcept {
  Entry* const entry = find([&](std::uint64_t from, std::uint64_t end) { return end != 0 && from == start.value; });
  if (entry == nullptr) return;
  entry->end.store(0, std::memory_order_relaxed);
  ++removed_;
}

bool ManagedRanges::contains(DeviceAddress address) const noexcept {
  return find([&](std::uint64_t start, std::uint64_t end) { return start <= address.value && address.value < end; }) !=
         nullptr;
}

Bytes Region::arena_step(Bytes size) const noexcept {
  // Address space costs nothing until memory is behind it, and each further range lengthens ManagedRanges::contains.
  const Bytes whole = extent_size(size);
  return reserves_each() ? whole : std::max(whole, round_up(64_GiB, granule()));
}

Extent* Region::add_extent(Bytes size, std::uint64_t order) {
  for (auto& arena : arenas_) {
    if (reserves_each() && arena.range().size != size) continue;
    const auto range = arena.take(size);
    if (!range) continue;
    try {
      return &extents.try_emplace(range->start, *this, *range, order).first->second;
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

void Region::drop_arena(DeviceAddress start) noexcept {
  arenas_.remove_if([&](const SlotMap& arena) { return arena.range().start == start; });
}

void Region::remove_extent(Extent& extent) noexcept {
  const auto start = extent.range().start;
  if (reserves_each())
    drop_arena(start);
  else
    arena_of(start).give_back(start);
  extents.erase(start);
}

void Region::rekey_extent(Extent& extent) noexcept {
  drop_arena(extent.range().start);
  auto node = extents.extract(extent.range().start);
  extent.settle_elsewhere();
  if (extent.slots) extent.slots->rebase(extent.range().start);
  node.key() = extent.range().start;
  extents.insert(std::move(node));
}

void Region::join_extents(AddressRange range) noexcept {
  arena_of(range.start).join_used(range);
  const auto first = extents.find(range.start);
  extents.erase(std::next(first), extents.lower_bound(range.end()));
  first->second.resize(range.size);
}

Extent& Region::split_extent(Extent& extent, DeviceAddress at) {
  const AddressRange rest{at, extent.range().end() - at};
  const auto made = extents.try_emplace(at, *this, rest, extent.order).first;
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

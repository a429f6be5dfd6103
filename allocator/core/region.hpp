// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <list>
#include <map>
#include <optional>

#include "allocator/core/extent.hpp"

namespace lowtide {

/// What cuMemAlloc gives in practice; the manual promises less.
constexpr Bytes block_alignment{512};

/// Every address range that was ever reserved for blocks, for a lock-free "is this ours?" on the path of each free.
/// Ranges are only added: a region keeps its arena for the life of the process.
class ManagedRanges {
 public:
  /// False if there is no place left (1024 ranges).
  bool add(AddressRange range) noexcept;
  bool contains(DeviceAddress address) const noexcept;

 private:
  struct Entry {
    std::atomic<std::uint64_t> start;
    std::atomic<std::uint64_t> end;
  };
  std::array<Entry, 1024> entries_{};
  std::atomic<std::size_t> count_{0};
};

/// All blocks of one label on one device: its arena (reserved address ranges) and the extents in it. Guarded by the
/// block table's lock.
class Region {
 public:
  Region(const Label& its_label, Backend& its_backend) : label(its_label), backend(its_backend) {}

  /// The smallest block that has an extent of its own; smaller ones share extents of this size.
  Bytes granule() const noexcept { return backend.capabilities().granularity; }
  /// How much address space to reserve when `size` bytes found no place.
  static Bytes arena_step(Bytes size, Bytes granule) noexcept;

  /// Adds a reserved range. May throw std::bad_alloc, and then nothing changed.
  void add_arena(AddressRange range) { arenas_.emplace_back(range); }
  /// Takes the last added range off again; nothing was placed in it.
  void drop_last_arena() noexcept { arenas_.pop_back(); }
  /// A new extent of `size` bytes (a multiple of the granule), busy and bare; null if the arena has no place for it.
  Extent* add_extent(Bytes size);
  void remove_extent(Extent& extent) noexcept;
  /// The bare extents of `range`, which they fill, become the first of them. Those after it are gone.
  void join_extents(AddressRange range) noexcept;
  /// Cuts a bare extent: what it had from `at` on is a new one, busy and bare. May throw std::bad_alloc, and then
  /// nothing changed.
  Extent& split_extent(Extent& extent, DeviceAddress at);
  struct Place {
    Extent* extent;
    AddressRange range;
  };
  /// A place of `size` bytes in an extent that others have blocks in, and that is resident and idle.
  std::optional<Place> place_in_shared(Bytes size);
  /// `extent` has gaps that it had not before.
  void note_gaps(const Extent& extent) noexcept { most_gap_ = std::max(most_gap_, extent.slots->free_bytes()); }

  const Label label;
  Backend& backend;
  std::map<DeviceAddress, Extent> extents;

 private:
  SlotMap& arena_of(DeviceAddress address) noexcept;

  std::list<SlotMap> arenas_;
  DeviceAddress last_shared_;  ///< where the last place was found: a run of allocations is placed in constant time
  Bytes most_gap_;             ///< no gap of a shared extent is larger: a search that would fail is not begun
};

}  // namespace lowtide

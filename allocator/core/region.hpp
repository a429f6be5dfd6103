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

/// Every address range that is reserved for blocks, for a lock-free "is this ours?" on the path of each free. Writers
/// hold the block table's lock. A reader that meets a removal may hear yes for an address that never was in a range:
/// who acts on a yes asks again under the lock.
class ManagedRanges {
 public:
  static constexpr std::size_t most = std::size_t{64} * 1024;

  ManagedRanges() = default;
  ManagedRanges(const ManagedRanges&) = delete;
  ManagedRanges& operator=(const ManagedRanges&) = delete;
  ~ManagedRanges();

  /// False if there is no place left, or no host memory.
  bool add(AddressRange range) noexcept;
  void remove(DeviceAddress start) noexcept;
  bool contains(DeviceAddress address) const noexcept;

 private:
  struct Entry {
    std::atomic<std::uint64_t> start;
    std::atomic<std::uint64_t> end;
  };
  using Chunk = std::array<Entry, 1024>;
  /// The entry in use for which `found` is true; null if there is none.
  template <class Found>
  Entry* find(Found found) const noexcept;

  std::array<std::atomic<Chunk*>, most / 1024> chunks_{};
  std::atomic<std::size_t> count_{0};
  std::size_t removed_ = 0;
};

/// All blocks of one label on one device, and of one context where memory belongs to contexts: its arena (reserved
/// address ranges) and the extents in it. Guarded by the block table's lock.
class Region {
 public:
  Region(const Label& its_label, Backend& its_backend, ContextId its_context)
      : label(its_label), backend(its_backend), context(its_context) {}

  Bytes granule() const noexcept { return backend.capabilities().granularity; }
  /// The smallest block that has an extent of its own; smaller ones share extents of this size.
  Bytes shared_extent() const noexcept { return std::max(granule(), backend.capabilities().shared_extent); }
  /// Of the extent that a block of `size` bytes is put in.
  Bytes extent_size(Bytes size) const noexcept {
    return std::max(round_up(size, std::max(granule(), backend.capabilities().extent_step)), shared_extent());
  }
  /// Whether each of its extents has an arena of its own.
  bool reserves_each() const noexcept { return backend.capabilities().reserves_each; }
  /// How much address space to reserve when `size` bytes found no place.
  Bytes arena_step(Bytes size) const noexcept;

  /// Adds a reserved range. May throw std::bad_alloc, and then nothing changed.
  void add_arena(AddressRange range) { arenas_.emplace_back(range); }
  /// Takes the range off again in which nothing is placed.
  void drop_arena(DeviceAddress start) noexcept;
  /// A new extent of `size` bytes (a multiple of the granule), busy and bare; null if no arena has a place for it.
  /// `order` is that of its making.
  Extent* add_extent(Bytes size, std::uint64_t order);
  /// Its arena goes with it, if that was its own.
  void remove_extent(Extent& extent) noexcept;
  /// A range was added, of its size, for an extent that was sent there.
  void take_arena(DeviceAddress start, Bytes size) { arena_of(start).take_at({start, size}); }
  /// The extent is where it was sent; its former arena is dropped.
  void rekey_extent(Extent& extent) noexcept;
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
  const ContextId context;  ///< none where memory outlives contexts
  std::map<DeviceAddress, Extent> extents;

 private:
  SlotMap& arena_of(DeviceAddress address) noexcept;

  std::list<SlotMap> arenas_;
  DeviceAddress last_shared_;  ///< where the last place was found: a run of allocations is placed in constant time
  Bytes most_gap_;             ///< no gap of a shared extent is larger: a search that would fail is not begun
};

}  // namespace lowtide

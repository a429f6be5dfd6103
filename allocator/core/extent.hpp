// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "allocator/core/backend.hpp"
#include "allocator/core/backup_store.hpp"
#include "allocator/core/content.hpp"
#include "allocator/core/host_backing.hpp"
#include "allocator/core/slot_map.hpp"

namespace lowtide {

class Region;

/// One physical handle behind one or more neighbouring blocks of a region. The physical side is a ladder,
/// bare - created - mapped - accessible, climbed and descended one driver call at a time. A call that fails leaves the
/// extent on the rung it had reached, so that nothing leaks and the next attempt goes on from there.
///
/// Not thread-safe: whoever set `busy` (under the block table's lock) owns the ladder, the backup and the residency.
class Extent {
 public:
  Extent(Region& its_region, AddressRange range, std::uint64_t its_order)
      : region(its_region), order(its_order), range_(range) {}

  /// Gets physical memory behind the range, readable and writable from the device and `peers`.
  Status climb(Backend& backend, std::span<const DeviceId> peers);
  /// Gives the physical memory back, as far as the driver lets it.
  Status descend(Backend& backend);
  /// The same of one that is parked: its memory will be wanted at the same address.
  Status park(Backend& backend);
  /// The first part of the climb: memory that is mapped nowhere, or still at the range.
  Status climb_to_created(Backend& backend);
  /// The first two parts: memory behind the range that cannot be used yet.
  Status climb_to_mapped(Backend& backend);
  /// The memory stays, behind nothing.
  Status descend_to_created(Backend& backend);
  /// The last part of the climb, and the way to apply a changed set of peers.
  Status set_access(Backend& backend, std::span<const DeviceId> peers);

  /// The same for neighbours in order of address: one driver call for a whole span of them, and one each where that
  /// fails. A cuMemUnmap and a cuMemSetAccess may span many mappings.
  static Status set_access(std::span<Extent* const> neighbours, Backend& backend, std::span<const DeviceId> peers);
  /// Takes the memory from behind the mapped ones of `neighbours`. A failure is met again by the descent of each.
  static void unmap(std::span<Extent* const> neighbours, Backend& backend);

  /// While it is bare: becomes `size` bytes long.
  void resize(Bytes size) noexcept { range_.size = size; }

  // The way out where its address cannot be had back. While it is bare and parked:
  /// It climbs elsewhere, to a reservation of its size.
  void go_to(DeviceAddress start) noexcept { memory_at_ = start; }
  /// Where its memory is, or will be: its own address, unless it was sent elsewhere.
  AddressRange place() const noexcept { return {memory_at_.value_or(range_.start), range_.size}; }
  bool is_elsewhere() const noexcept { return memory_at_.has_value(); }
  /// That is no more; once it is bare again.
  void come_home() noexcept { memory_at_.reset(); }
  /// It is its address from now on.
  void settle_elsewhere() noexcept { range_.start = *std::exchange(memory_at_, std::nullopt); }

  /// The memory, from the rung `created` on.
  PhysicalId physical() const noexcept { return physical_; }
  const AddressRange& range() const noexcept { return range_; }
  // These may be asked at any time.
  bool holds_memory() const noexcept { return rung() != Rung::bare; }
  bool mapped() const noexcept { return rung() >= Rung::mapped; }
  bool accessible() const noexcept { return rung() == Rung::accessible; }
  /// Nothing of the driver's is behind it or held for it. Under the block table's lock, of an extent that is idle or
  /// one's own.
  bool empty() const noexcept { return !holds_memory() && !host && !is_elsewhere(); }

  // Bookkeeping of the block table, under its lock.
  Region& region;
  const std::uint64_t order;        ///< of its making, among all extents
  std::unique_ptr<SlotMap> slots;   ///< where its blocks lie; null if one block has the extent alone
  std::uint64_t blocks = 0;         ///< live blocks, those whose free waits for a transition included
  Bytes requested;                  ///< what they asked for, together
  bool busy = true;                 ///< being built, torn down, or part of a transition
  const char* shared_by = nullptr;  ///< the call that gave the physical memory to somebody else, a string literal

  // State of the content, changed only by whoever set `busy`.
  std::atomic<bool> resident{true};  ///< the program's bytes are behind the address (false: parked)
  std::unique_ptr<Backup> backup;    ///< of a parked extent; null if its content was discarded
  /// Of a discarded one, parked or resident, until the update that writes it anew ends: what that may leave out.
  std::unique_ptr<Backup> held_back;
  /// In whose place host memory is, while it is parked, or what of that could not be given back yet; else null.
  std::unique_ptr<HostBacking> host;
  std::unique_ptr<Backup> retained;  ///< of a resident one: what it held when it was resumed, for the next pause

 private:
  enum class Rung : std::uint8_t { bare, created, mapped, accessible };

  Rung rung() const noexcept { return rung_.load(std::memory_order_relaxed); }

  AddressRange range_;
  std::optional<DeviceAddress> memory_at_;
  PhysicalId physical_;
  std::atomic<Rung> rung_{Rung::bare};
};

/// One tracked allocation.
struct Block {
  AddressRange range;  ///< as requested
  Extent* extent;
  ContextId context;     ///< the context it was allocated in; it dies with it
  bool leaving = false;  ///< a thread carries its free out
  OriginId origin{};
  BlockContent content{};
};

}  // namespace lowtide

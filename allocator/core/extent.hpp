// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <memory>
#include <span>

#include "allocator/core/backend.hpp"
#include "allocator/core/backup_store.hpp"
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
  Extent(Region& its_region, AddressRange range) : region(its_region), range_(range) {}

  /// Gets physical memory behind the range, readable and writable from the device and `peers`.
  Status climb(Backend& backend, std::span<const DeviceId> peers);
  /// Gives the physical memory back, as far as the driver lets it.
  Status descend(Backend& backend);
  /// Applies a changed set of peers.
  Status set_access(Backend& backend, std::span<const DeviceId> peers);

  const AddressRange& range() const noexcept { return range_; }
  // These may be asked at any time.
  bool holds_memory() const noexcept { return rung() != Rung::bare; }
  bool mapped() const noexcept { return rung() >= Rung::mapped; }
  bool accessible() const noexcept { return rung() == Rung::accessible; }

  // Bookkeeping of the block table, under its lock.
  Region& region;
  std::unique_ptr<SlotMap> slots;   ///< where blocks smaller than a granule lie; null if one block has the extent alone
  std::uint64_t blocks = 0;         ///< live blocks, those whose free waits for a transition included
  Bytes requested;                  ///< what they asked for, together
  bool busy = true;                 ///< being built, torn down, or part of a transition
  const char* shared_by = nullptr;  ///< the call that gave the physical memory to somebody else, a string literal

  // State of the content, changed only by whoever set `busy`.
  std::atomic<bool> resident{true};  ///< the program's bytes are behind the address (false: parked)
  std::unique_ptr<Backup> backup;    ///< of a parked extent; null if its content was discarded

 private:
  enum class Rung : std::uint8_t { bare, created, mapped, accessible };

  Rung rung() const noexcept { return rung_.load(std::memory_order_relaxed); }

  AddressRange range_;
  PhysicalId physical_;
  std::atomic<Rung> rung_{Rung::bare};
};

/// One tracked allocation.
struct Block {
  AddressRange range;  ///< as requested
  Extent* extent;
  ContextId context;  ///< the context it was allocated in; it dies with it
};

}  // namespace lowtide

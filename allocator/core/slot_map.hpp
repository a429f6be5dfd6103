// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <optional>

#include "allocator/core/types.hpp"

namespace lowtide {

/// Cuts one address range into slots, used and free. Taking may throw std::bad_alloc and then changes nothing; giving
/// back never allocates, because a free must not fail. Next fit: the search goes on where the last one ended, so that a
/// run of allocations is placed in order and in constant time. Not thread-safe.
class SlotMap {
 public:
  explicit SlotMap(AddressRange range);

  /// A free range of exactly `size` bytes, which is not zero; nothing if no gap is large enough.
  std::optional<AddressRange> take(Bytes size);
  /// Exactly this range, all of which is free.
  void take_at(AddressRange range);
  /// The used slots of `range`, which they fill, become one.
  void join_used(AddressRange range) noexcept;
  /// A used slot becomes two, the second of which starts at `at`, inside it. May throw std::bad_alloc.
  void split_used(DeviceAddress start, DeviceAddress at);
  /// The range, with all its slots, begins at `start` from now on.
  void rebase(DeviceAddress start) noexcept;
  /// Gives back the slot that starts at `start`, which `take` returned.
  void give_back(DeviceAddress start) noexcept;

  const AddressRange& range() const noexcept { return range_; }
  /// Bytes in free slots.
  Bytes free_bytes() const noexcept { return free_; }

 private:
  struct Slot {
    Bytes size;
    bool used;
  };
  using Slots = std::map<DeviceAddress, Slot>;

  AddressRange cut(Slots::iterator slot, Bytes size);

  AddressRange range_;
  Bytes free_;
  Slots slots_;
  Slots::iterator next_;
};

}  // namespace lowtide

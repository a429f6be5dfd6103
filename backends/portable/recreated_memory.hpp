// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <mutex>

#include "allocator/core/backend.hpp"

namespace lowtide::portable {

/// Memory that is freed by a pause and allocated again by a resume, at the address that it had. No driver promises that
/// address: it is tried for, by holding what came in its place and asking again, and Code::moved says that it was in
/// vain.
///
/// A reservation is one plain allocation. Its memory is there from `reserve` on, and `create` hands it over. One for
/// all devices of the process, which share one address space: what was freed on one may be given to another.
/// Thread-safe: one lock, also across the drivers' calls, since two searches at a time would take each other's places.
class RecreatedMemory {
 public:
  // As in the port. `plain`, the device's memory, outlives what is reserved there.
  Result<DeviceAddress> reserve(PlainMemory& plain, Bytes size, ContextId context);
  Status release_reservation(AddressRange range);
  Result<PhysicalId> create(AddressRange range);
  /// That `create` gave `physical` for `range`, and it was not freed since.
  Status check_held(AddressRange range, PhysicalId physical);
  /// The memory goes; the place stays.
  Status free(DeviceAddress start);
  /// The end of a `create`, whose memory was freed or is now.
  Status release(PhysicalId physical);
  void keep_address(AddressRange range);
  bool is_taken(PlainMemory& plain, DeviceAddress address);
  /// The end of a search: what it held goes back, and the places that are still parked are kept again.
  void settle() noexcept;
  /// What an earlier search could not give back.
  void give_back_rest() noexcept;

 private:
  enum class State {
    fresh,   ///< memory from `reserve` that nobody has created yet
    held,    ///< memory behind the address
    freed,   ///< nothing is there: the driver may give the address to anybody
    kept,    ///< the platform keeps the address
    let_go,  ///< the same, but for the time of a search
  };
  struct Place {
    PlainMemory* plain;
    Bytes size;
    ContextId context;
    State state;
  };
  bool keep(PlainMemory& plain, AddressRange range) noexcept;
  /// What came in the place of what was asked for.
  struct Spare {
    PlainMemory* plain;
    Bytes size;
    ContextId context;
    bool is_memory;  ///< else only its addresses are kept
  };
  using Places = std::map<DeviceAddress, Place>;
  using Spares = std::map<DeviceAddress, Spare>;

  static bool is_parked(const Place& place) { return place.state >= State::freed; }
  /// Whether there is a place, parked or not.
  bool meets_place(AddressRange range) const;
  static bool fits(const Spare& spare, const Place& place) {
    return spare.is_memory && spare.plain == place.plain && spare.context == place.context && spare.size == place.size;
  }
  /// Whether it is what a parked place waits for.
  bool is_wanted(DeviceAddress start, const Spare& spare) const;
  void begin_search() noexcept;
  Status recover(DeviceAddress start, Place& place);
  bool take_spare(DeviceAddress start, const Place& place);
  /// What came in the place of `wanted` is held, so that it does not come again.
  void hold(Spares::node_type node, AddressRange got, AddressRange wanted, const Place& place, int tries);
  /// Gives the spares back for which `is_useless`, as far as the driver takes them. Whether one was memory.
  template <class IsUseless>
  bool drop_spares(IsUseless is_useless) noexcept;
  bool drop_all() noexcept;
  /// Frees spare memory: that which is at no parked place, else all of it. False if there was none.
  bool make_room() noexcept;

  std::mutex mutex_;
  Places places_;
  Spares spares_;  ///< outside a search: what the driver would not take back
  bool searching_ = false;
  int tries_left_ = 0;
  bool can_keep_ = true;  ///< until the first try fails
  bool has_kept_ = false;
};

}  // namespace lowtide::portable

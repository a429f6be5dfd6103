// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <mutex>
#include <vector>

#include "allocator/core/backend.hpp"
#include "allocator/core/held_addresses.hpp"
#include "backends/portable/host_gaps.hpp"
#include "backends/portable/margins.hpp"

namespace lowtide::portable {

/// Memory that is freed by a pause and allocated again by a resume, at the address that it had. No driver promises that
/// address. It is asked for in a way in which the host has no other one to give (HostGaps), then tried for, by holding
/// what came in its place and asking again; Code::moved says that it was in vain.
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
  /// The end of a search: what it held goes back.
  void settle() noexcept;
  /// What an earlier search could not give back.
  void give_back_rest() noexcept;

 private:
  enum class State {
    fresh,  ///< memory from `reserve` that nobody has created yet
    held,   ///< memory behind the address
    freed,  ///< nothing is there
  };
  struct Place {
    PlainMemory* plain;
    Bytes size;
    ContextId context;
    State state;
    HeldAddresses kept{};  ///< of a freed one: its addresses, as far as nobody else had got them
    Margins margins{};
  };
  /// What came in the place of what was asked for.
  struct Spare {
    PlainMemory* plain;
    Bytes size;
    ContextId context;
    HeldAddresses addresses{};  ///< if they alone are held, else it is memory
    bool is_memory() const { return !addresses; }
  };
  using Places = std::map<DeviceAddress, Place>;
  using Spares = std::map<DeviceAddress, Spare>;

  static bool is_parked(const Place& place) { return place.state == State::freed; }
  /// Whether there is a place, parked or not.
  bool meets_place(AddressRange range) const;
  static bool fits(const Spare& spare, const Place& place) {
    return spare.is_memory() && spare.plain == place.plain && spare.context == place.context &&
           spare.size == place.size;
  }
  /// Whether it is what a parked place waits for.
  bool is_wanted(DeviceAddress start, const Spare& spare) const;
  /// Memory for `place`, with what margins it has, anywhere but at those that were passed over.
  Result<DeviceAddress> allocate_beside(const std::vector<AddressRange>& passed, Place& place);
  /// Memory for `place` where no parked block comes back, and, if wished, with whole margins.
  Result<DeviceAddress> find_new(Place& place, bool with_margins);
  void begin_search() noexcept;
  Status recover(DeviceAddress start, Place& place);
  bool take_spare(DeviceAddress start, Place& place);
  /// Asks for memory while the addresses of `wanted` are the host's first choice.
  static Result<DeviceAddress> allocate_at(AddressRange wanted, Place& place);
  /// What came in the place of `wanted` is held, so that it does not come again.
  void hold(Spares::node_type node, AddressRange got, AddressRange wanted, Place& place);
  /// Gives the spares back for which `is_useless`, as far as the driver takes them. Whether one was memory.
  template <class IsUseless>
  bool drop_spares(IsUseless is_useless) noexcept;
  bool drop_all() noexcept;
  /// Frees spare memory: that which is at no parked place, else all of it. False if there was none.
  bool make_room() noexcept;

  std::mutex mutex_;
  Places places_;
  Spares spares_;  ///< outside a search: what the driver would not take back
  HostGaps gaps_;
  bool searching_ = false;
  int tries_left_ = 0;
  int in_vain_ = 0;  ///< the last searches for new places with whole margins
};

}  // namespace lowtide::portable

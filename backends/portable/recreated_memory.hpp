// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <mutex>
#include <optional>

#include "allocator/core/backend.hpp"

namespace lowtide::portable {

/// Memory that is freed by a pause and allocated again by a resume, at the address that it had. No driver promises that
/// address: it is tried for, by holding what came in its place and asking again, and Code::moved says that it was in
/// vain.
///
/// A reservation is one plain allocation. Its memory is there from `reserve` on, and `create` hands it over.
/// Thread-safe: one lock, also across the driver's calls, since two searches at a time would take each other's places.
class RecreatedMemory {
 public:
  /// `plain` outlives it.
  explicit RecreatedMemory(PlainMemory& plain) : plain_(plain) {}

  // As in the port.
  Result<DeviceAddress> reserve(Bytes size);
  Status release_reservation(AddressRange range);
  Result<PhysicalId> create(AddressRange range);
  /// That `create` gave `physical` for `range`, and it was not freed since.
  Status check_held(AddressRange range, PhysicalId physical);
  /// The memory goes; the place stays.
  Status free(DeviceAddress start);
  /// The end of a `create`, whose memory was freed or is now.
  Status release(PhysicalId physical);
  void keep_address(AddressRange range);
  bool is_taken(DeviceAddress address);
  /// The end of a search: what it held goes back, and the places that are still parked are kept again.
  void settle() noexcept;

 private:
  enum class State {
    fresh,   ///< memory from `reserve` that nobody has created yet
    held,    ///< memory behind the address
    freed,   ///< nothing is there: the driver may give the address to anybody
    kept,    ///< the platform keeps the address
    let_go,  ///< the same, but for the time of a search
  };
  struct Place {
    Bytes size;
    ContextId context;
    State state;
  };
  /// What came in the place of what was asked for.
  struct Spare {
    Bytes size;
    ContextId context;
    bool is_memory;  ///< else only its addresses are kept
  };
  using Places = std::map<DeviceAddress, Place>;
  using Spares = std::map<DeviceAddress, Spare>;

  static bool is_parked(const Place& place) { return place.state >= State::freed; }
  bool meets_parked(AddressRange range) const;
  bool is_wanted(AddressRange range) const;
  void begin_search() noexcept;
  Status recover(DeviceAddress start, Place& place);
  bool take_spare(DeviceAddress start, const Place& place);
  void hold(Spares::node_type node, AddressRange got, ContextId context);
  /// Gives the spares back for which `is_useless`, as far as the driver takes them. Whether one was memory.
  template <class IsUseless>
  bool drop_spares(IsUseless is_useless) noexcept;
  Status drop(DeviceAddress start, const Spare& spare) noexcept;

  PlainMemory& plain_;
  std::mutex mutex_;
  Places places_;
  Spares spares_;  ///< outside a search: what the driver would not take back
  bool searching_ = false;
  int tries_left_ = 0;
  bool can_keep_ = true;  ///< until a try fails
};

}  // namespace lowtide::portable

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <vector>

#include "allocator/core/block_table.hpp"
#include "allocator/core/transition_devices.hpp"

namespace lowtide {

class AdmittedTransition;

/// What a pause moves to host memory instead of saving it. Until the extents have given up their device memory nothing
/// is changed: those that are resident when this ends lose their host memory again.
class HostMove {
 public:
  /// `extents` are busy, resident and of devices that can. All arguments outlive it.
  HostMove(std::span<Extent* const> extents, BackupStore& store, TransitionDevices& devices)
      : extents_(extents), store_(store), devices_(devices) {}
  HostMove(const HostMove&) = delete;
  HostMove& operator=(const HostMove&) = delete;
  ~HostMove();

  /// Copies all content; the extents then have their backups. Nothing runs on the devices. Code::host_budget, with the
  /// numbers, if there is no room.
  Status copy(const BlockTable& table);

 private:
  Status fill(const BlockTable& table);

  std::span<Extent* const> extents_;
  BackupStore& store_;
  TransitionDevices& devices_;
  bool copying_ = false;  ///< copies may be in flight
};

/// After a pause took the device memory of `extent`: its host memory takes the place if it holds the content. If it
/// cannot, the extent is parked all the same, and read again by the next attempt.
void settle_parked(Extent& extent) noexcept;

/// Brings back extents with filled host memory, in two steps around a wait for the copies.
Status stage_moved(std::span<Extent* const> moved, AdmittedTransition& admitted);
/// Nothing runs on the devices.
Status exchange_moved(std::span<Extent* const> moved, const BlockTable& table);

}  // namespace lowtide

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <vector>

#include "allocator/core/extent.hpp"
#include "allocator/core/report.hpp"

namespace lowtide {

/// The devices that a transition touches, each once, with their free memory before and after.
class TransitionDevices {
 public:
  explicit TransitionDevices(std::span<Extent* const> extents);

  /// Free memory now; a device that does not answer has 0.
  void note_before() noexcept;
  /// The numbers of both moments. Allocates nothing: it runs when the transition is committed. Called once.
  std::vector<DeviceReport> reports() noexcept;

  Status synchronise();
  Status finish_copies();
  /// Nothing, or Code::device_memory with the numbers if a device has less free than `extents` still need.
  Status has_room(std::span<Extent* const> extents);

 private:
  std::vector<Backend*> backends_;
  std::vector<DeviceReport> reports_;
};

}  // namespace lowtide

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <forward_list>
#include <map>
#include <mutex>
#include <vector>

#include "allocator/runtime.hpp"

namespace lowtide::compat {

/// Parked bytes in one piece, for callers that are given a pointer and no end. Thread-safe.
class HostCopies {
 public:
  /// The backup's own bytes where they lie in one piece, else a copy of them as they are now. A copy's place stays good
  /// until `drop_gone` finds that there is no backup any more. Null if there is none that can be pointed at, or the
  /// range does not lie in one block.
  const std::byte* at(Runtime& runtime, AddressRange range, Runtime::Copies copies);
  /// Something was paused or resumed: copies whose backup is gone go as well. Those of other tags are not touched,
  /// since callers may be reading them.
  void drop_gone(Runtime& runtime, Runtime::Copies copies);

 private:
  std::mutex mutex_;
  /// By where they begin; longer ones come first, and the shorter ones stay for who was given them.
  std::map<DeviceAddress, std::forward_list<std::vector<std::byte>>> copies_;
};

}  // namespace lowtide::compat

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <mutex>
#include <vector>

#include "allocator/runtime.hpp"

namespace lowtide::compat {

/// Parked bytes in one piece, for callers that are given a pointer and no end. Thread-safe.
class HostCopies {
 public:
  /// The backup's own bytes where they lie in one piece, else a copy of them that lives until `drop`. Null if there is
  /// no backup that can be pointed at.
  const std::byte* at(Runtime& runtime, AddressRange range, Runtime::Copies copies);
  /// Something was paused, resumed or freed: no pointer that was given is good any more.
  void drop() noexcept;

 private:
  std::mutex mutex_;
  std::map<DeviceAddress, std::vector<std::byte>> copies_;
};

}  // namespace lowtide::compat

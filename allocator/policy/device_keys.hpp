// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "allocator/core/types.hpp"

namespace lowtide {

/// By which name processes that see one physical device meet in its ledger. The composition root fills it in.
class DeviceKeys {
 public:
  virtual ~DeviceKeys() = default;
  /// "GPU-0f3c..." by the device's UUID, that of the instance on a MIG device, or "pci-0000:65:00.0"; never an index.
  /// "" if the driver says nothing. Any thread.
  virtual std::string key_of(DeviceId device) = 0;
};

}  // namespace lowtide

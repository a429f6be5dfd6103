// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>

#include "allocator/core/backend.hpp"
#include "shim/backend_choice.hpp"
#include "shim/door_table.h"
#include "shim/loader/real_loader.hpp"

namespace lowtide {

class Runtime;

/// What the composition root asks of a vendor. A process has one, that of its first GPU call.
class Platform {
 public:
  /// Where a thread's calls go.
  struct Place {
    int device;
    ContextId context;
  };

  virtual ~Platform() = default;
  virtual lowtide_vendor vendor() const noexcept = 0;
  /// Opens the vendor's library and reads its functions, going past the doors. Nothing else is called before.
  virtual Status load(const RealLoader& loader) = 0;
  /// Whether it is no GPU's library, but the simulated one.
  virtual bool simulated() const noexcept = 0;

  /// The calling thread's device and context; nothing if it has none, or there is no device.
  virtual std::optional<Place> current() noexcept = 0;
  /// A context of `device` that the process keeps, for callers that name a device. `running`, which may be null, is
  /// told of what nobody else told it: without the doors, contexts come and go unseen. Not thread-safe.
  virtual Result<ContextId> own_context(int device, Runtime* running) = 0;
  /// Calls `work` with `context` current on the calling thread.
  virtual Status in_context(ContextId context, const std::function<Status()>& work) = 0;

  /// The vendor's plain memory. May be called while streams are captured.
  virtual Result<DeviceAddress> allocate(ContextId context, Bytes size) = 0;
  virtual Status free(ContextId context, DeviceAddress address) = 0;

  /// What the device has, for all processes. `context` is live on it.
  virtual Result<MemoryInfo> memory_info(ContextId context) = 0;
  /// What people call the device; "" if the vendor does not tell.
  virtual std::string device_name(DeviceId device) = 0;

  /// What can serve a device. What is made of it lives no longer than this.
  virtual Ladder ladder(DeviceId device) = 0;

  /// By which all processes know the device, as DeviceKeys says; "" if the vendor does not tell.
  virtual std::string key_of(DeviceId device) = 0;
  /// How many devices there are; the vendor's library is initialised.
  virtual Result<int> device_count() = 0;
  /// That of the vendor's interface: "13.0".
  virtual std::string version() = 0;
};

}  // namespace lowtide

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "allocator/base/result.hpp"
#include "allocator/core/backend.hpp"
#include "allocator/core/slot_map.hpp"

namespace lowtide {

/// A piece of host memory, registered with the driver for fast copies, in huge pages where the kernel gives them. A
/// child does not inherit it and a core dump leaves it out. It is cut into slots of whole granules of the device.
class Slab {
 public:
  static constexpr Bytes usual_size = 64_MiB;

  /// Code::host_budget if there is no memory. Where the driver refuses to register it, the slab works and copies
  /// slowly.
  static Result<std::unique_ptr<Slab>> make(Backend& backend, Bytes size);
  Slab(const Slab&) = delete;
  Slab& operator=(const Slab&) = delete;
  ~Slab();

  bool registered() const noexcept { return registered_; }
  /// False if the driver would not: then the slab has to stay, since memory that is given to the host again while the
  /// driver takes it for registered cannot be registered a second time.
  bool unregister() noexcept;
  Bytes size() const noexcept { return slots.range().size; }
  bool empty() const noexcept { return slots.free_bytes() == size(); }

  SlotMap slots;  ///< in host addresses

 private:
  Slab(Backend& backend, void* memory, Bytes size)
      : slots({{reinterpret_cast<std::uintptr_t>(memory)}, size}), backend_(backend) {}
  void* memory() const noexcept { return reinterpret_cast<void*>(slots.range().start.value); }

  Backend& backend_;
  bool registered_ = false;
};

}  // namespace lowtide

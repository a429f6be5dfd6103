// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "allocator/backup/host_budget.hpp"
#include "allocator/base/result.hpp"
#include "allocator/core/backend.hpp"
#include "allocator/core/slot_map.hpp"

namespace lowtide {

/// A piece of host memory, in huge pages where the kernel gives them, and registered with the driver for fast copies. A
/// child does not inherit it and a core dump leaves it out.
class Slab {
 public:
  /// Larger ones are made no faster, and other threads' driver calls wait for a registration (1 to 2 ms).
  static constexpr Bytes usual_size = 32_MiB;
  /// The unit of a slab's size: a huge page.
  static constexpr Bytes unit = 2_MiB;

  /// What a slab is made of and from.
  struct Source {
    Backend& backend;              ///< registers it
    HostBudget& budget;            ///< is told when the memory goes back
    HostReservation& reservation;  ///< is told when the memory is there
    bool own_thread = false;       ///< the calling thread is ours, and may move to the device's node
  };
  /// Memory of which every page is there, near the device; not registered yet. Code::host_budget if there is none. This
  /// is what takes the time: called by several threads at once.
  static Result<std::unique_ptr<Slab>> make(const Source& source, Bytes size);
  /// For one thread at a time: the driver registers one piece of memory after the other, and more threads only make
  /// each other, and the copies, wait. A slab that the driver refuses works, and copies slowly.
  void register_with_driver() noexcept { registered_ = backend_.register_host(memory(), size()).has_value(); }
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
  Slab(const Source& source, void* memory, Bytes size)
      : slots({{reinterpret_cast<std::uintptr_t>(memory)}, size}), backend_(source.backend), budget_(source.budget) {}
  void* memory() const noexcept { return reinterpret_cast<void*>(slots.range().start.value); }

  Backend& backend_;
  HostBudget& budget_;
  bool counted_ = false;  ///< the budget takes its memory for touched
  bool registered_ = false;
};

}  // namespace lowtide

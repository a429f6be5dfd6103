// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mutex>
#include <vector>

#include "allocator/runtime.hpp"
#include "shim/observation/unmanaged.hpp"
#include "shim/platform.hpp"

namespace lowtide {

/// What a device's used memory is made of, at one moment, as far as this process knows.
struct DeviceSample {
  struct Tag {
    TagName tag;
    Bytes resident;  ///< also what a transition has mapped and not filled
    Bytes parked;
    Bytes backup;  ///< on the host
  };

  DeviceId device{};
  MemoryInfo memory;
  std::vector<Tag> tags;
  Unmanaged::Sums unmanaged{};  ///< of this process
  Bytes slack;                  ///< of the tags' extents, beyond what their blocks asked for
  Policy::Others others;
};

/// Whether the memory is a device's, and not the host's.
constexpr bool is_on_device(trace::Memory kind) noexcept {
  return kind != trace::Memory::host_pinned && kind != trace::Memory::host_registered;
}

/// Asks the devices. Thread-safe.
class Sampler {
 public:
  /// The three outlive it.
  Sampler(Runtime& runtime, Platform& platform, const Unmanaged& unmanaged)
      : runtime_(runtime), platform_(platform), unmanaged_(unmanaged) {}

  /// One for each device in use, by one call of the driver. May throw std::bad_alloc.
  std::vector<DeviceSample> take();
  /// The same, or nothing if another thread is at it.
  std::vector<DeviceSample> try_to_take();
  /// Free memory of a device that is in use, as it is now.
  Bytes free_memory(DeviceId device);

  /// Returns once nobody uses a context that the runtime did not know any more when this was called.
  void wait_until_idle() noexcept { const std::lock_guard lock(mutex_); }
  /// The driver is not called any more, once this returned; but it does not wait long for who is in a call.
  void stop() noexcept;

 private:
  std::vector<DeviceSample> take_locked();
  void add_tags(std::vector<DeviceSample>& samples);

  Runtime& runtime_;
  Platform& platform_;
  const Unmanaged& unmanaged_;
  std::timed_mutex mutex_;
  std::atomic<bool> stopped_{false};
};

}  // namespace lowtide

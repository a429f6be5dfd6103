// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include "allocator/runtime.hpp"
#include "tests/contract/world.hpp"

namespace lowtide::test {

class VmmFactory final : public BackendFactory {
 public:
  explicit VmmFactory(const cuda::Driver& driver) : driver_(driver) {}
  Result<std::unique_ptr<Backend>> make(DeviceId device, ContextId context) override;

 private:
  const cuda::Driver& driver_;
};

/// A runtime over the VMM backend, as a process has it, with the primary context of each device.
class RuntimeWorld {
 public:
  RuntimeWorld(const cuda::Driver& driver, std::size_t device_count);
  RuntimeWorld(const RuntimeWorld&) = delete;
  RuntimeWorld& operator=(const RuntimeWorld&) = delete;
  ~RuntimeWorld();

  ContextId context(std::size_t device = 0) const { return contexts_[device]; }
  Result<Backend*> attach(std::size_t device = 0) {
    return runtime.attach(DeviceId{static_cast<int>(device)}, context(device));
  }
  Result<TransitionReport> hold(const char* tag, std::chrono::milliseconds drain = std::chrono::minutes{1}) {
    return runtime.pause(tag_name(tag), true, drain, {}, {});
  }
  /// A block whose bytes are all `value`.
  DeviceAddress add(const char* tag, Bytes size, std::uint8_t value, std::size_t device = 0);
  bool holds(DeviceAddress address, Bytes size, std::uint8_t value, std::size_t device = 0);
  bool is_parked(DeviceAddress address);

 private:
  const cuda::Driver& driver_;
  std::vector<ContextId> contexts_;
  VmmFactory factory_;

 public:
  Runtime runtime;
};

}  // namespace lowtide::test

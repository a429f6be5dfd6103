// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>

#include "backends/hip/vmm_backend.hpp"
#include "backends/portable/recreated_memory.hpp"
#include "shim/platform.hpp"

namespace lowtide {

class HipPlatform final : public Platform {
 public:
  /// True once for each device; again after the device was reset.
  bool is_first_use(int device) noexcept { return (used_.fetch_or(bit_of(device)) & bit_of(device)) == 0; }
  void was_reset(int device) noexcept { used_.fetch_and(~bit_of(device)); }

  lowtide_vendor vendor() const noexcept override { return LOWTIDE_HIP; }
  Status load(const RealLoader& loader) override;
  bool simulated() const noexcept override { return simulated_; }
  std::optional<Place> current() noexcept override;
  Result<ContextId> own_context(int device, Runtime* running) override;
  Status in_context(ContextId context, const std::function<Status()>& work) override;
  Result<DeviceAddress> allocate(ContextId context, Bytes size) override;
  Status free(ContextId context, DeviceAddress address) override;
  Result<MemoryInfo> memory_info(ContextId context) override;
  std::string device_name(DeviceId device) override;
  Ladder ladder(DeviceId device) override;
  std::string key_of(DeviceId device) override;
  Result<int> device_count() override;
  std::string version() override;

 private:
  static std::uint64_t bit_of(int device) noexcept { return std::uint64_t{1} << (device % 64); }

  hip::Runtime runtime_;
  bool simulated_ = false;
  hip::Reservations reservations_;
  portable::RecreatedMemory memory_;  ///< of all devices, where they have no virtual memory management
  std::atomic<std::uint64_t> used_{0};
};

}  // namespace lowtide

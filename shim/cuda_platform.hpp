// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>

#include "backends/cuda/driver.hpp"
#include "backends/portable/recreated_memory.hpp"
#include "shim/platform.hpp"

namespace lowtide {

/// A context as the core knows it.
inline ContextId id_of(const void* context) { return {reinterpret_cast<std::uintptr_t>(context)}; }

class CudaPlatform final : public Platform {
 public:
  /// Valid once loaded.
  const cuda::Driver& driver() const noexcept { return driver_; }

  lowtide_vendor vendor() const noexcept override { return LOWTIDE_CUDA; }
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
  cuda::Driver driver_;
  decltype(&::cuDeviceGetUuid) uuid_of_ = nullptr;  ///< null: the driver has no such call
  bool simulated_ = false;
  portable::RecreatedMemory memory_;  ///< of all devices, where they have no virtual memory management
  std::map<int, CUcontext> own_contexts_;
};

}  // namespace lowtide

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>

#include "backends/cuda/device.hpp"

namespace lowtide::cuda {

/// The port over CUDA's virtual memory management.
class VmmBackend final : public Device {
 public:
  using Device::Device;

  const char* name() const noexcept override { return "vmm"; }

  Result<DeviceAddress> reserve(Bytes size) override;
  Status release_reservation(AddressRange range) override;
  Result<PhysicalId> create(AddressRange range) override;
  bool has_host_backing() override;
  Result<PhysicalId> create_host(Bytes size) override;
  Status release(PhysicalId physical) override;
  Status keep_address(AddressRange) override { return {}; }
  bool is_taken(DeviceAddress) override { return false; }
  Status map(AddressRange range, PhysicalId physical) override;
  Status unmap(AddressRange range) override;
  Status set_access(AddressRange range, std::span<const DeviceId> peers) override;
  Status set_read_access(AddressRange range, std::span<const DeviceId> peers) override;

 private:
  CUmemAllocationProp properties() const noexcept;
  CUmemLocation host_location() const noexcept;
  Status give_access(AddressRange range, std::span<const CUmemAccessDesc> access) const;

  std::atomic<bool> has_host_backing_{false};
};

}  // namespace lowtide::cuda

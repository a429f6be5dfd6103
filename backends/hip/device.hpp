// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mutex>
#include <optional>
#include <string>

#include "allocator/core/backend.hpp"
#include "backends/hip/copier.hpp"
#include "backends/hip/runtime.hpp"

namespace lowtide::hip {

/// The part of the port that is the same however the memory is got: bytes, waiting, host memory. Also plain memory, for
/// the portable backend. Its one context lives from an `attach` to the `detach` at a reset of the device.
class Device : public Backend, public PlainMemory {
 public:
  /// `runtime` outlives it. `capabilities` and `reason` come from a trial.
  Device(const Runtime& runtime, DeviceId device, std::string device_name, Capabilities capabilities,
         std::string reason);
  ~Device() override;

  DeviceId device() const noexcept override { return device_; }
  const std::string& device_name() const noexcept override { return device_name_; }
  const std::string& reason() const noexcept override { return reason_; }
  const Capabilities& capabilities() const noexcept override { return capabilities_; }

  Status attach(ContextId context) override;
  void detach(ContextId context) noexcept override;

  bool has_host_backing() override { return false; }
  Result<PhysicalId> create_host(Bytes size) override;
  Status set_read_access(AddressRange range, std::span<const DeviceId> peers) override;

  Status copy_out(void* host, AddressRange range) override;
  Status copy_in(AddressRange range, const void* host) override;
  Status copy_within(AddressRange to, DeviceAddress from) override;
  Status fill(AddressRange range, std::uint8_t value) override;
  Status limit_copies(Bytes in_flight) override;
  Status finish_copies() override;
  Status digest(std::span<const AddressRange> pages, std::span<PageDigest> digests) override;
  Status fill_blank(std::span<const AddressRange> pages) override;
  Status count_blank(std::span<const AddressRange> pages, std::span<std::uint64_t> counts) override;
  const DigestKey& digest_key() const noexcept override { return digest_key_; }
  Status synchronise() override;

  Status register_host(void* memory, Bytes size) override;
  Status unregister_host(void* memory) noexcept override;
  Result<MemoryInfo> memory_info() override;

  Result<DeviceAddress> allocate(Bytes size, ContextId context) override;
  Status free(DeviceAddress address, ContextId context) override;
  bool begins_at(DeviceAddress address) override;

 protected:
  const Runtime& runtime() const noexcept { return runtime_; }
  /// Runs `call()`, which answers with a result or a status, on this device.
  template <class Call>
  Status on_device(const char* name, Call call) const {
    const DeviceGuard guard(runtime_, device_);
    if (guard.result() != hipSuccess) return runtime_.status(guard.result(), name);
    if constexpr (std::is_same_v<std::invoke_result_t<Call>, hipError_t>)
      return runtime_.status(call(), name);
    else
      return call();
  }

 private:
  /// Starts a copy or a fill of `bytes` bytes by `call(stream)`.
  template <class Call>
  Status start_copy(const char* name, Bytes bytes, Call call);

  const Runtime& runtime_;
  const DeviceId device_;
  const std::string device_name_;
  const Capabilities capabilities_;
  const std::string reason_;
  const DigestKey digest_key_;
  std::mutex copying_;            ///< the copier's counts, and whether there is one
  std::optional<Copier> copier_;  ///< while a context is attached
};

/// What people call the device.
std::string name_of(const Runtime& runtime, DeviceId device);

}  // namespace lowtide::hip

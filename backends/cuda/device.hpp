// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <mutex>
#include <string>

#include "allocator/core/backend.hpp"
#include "backends/cuda/copier.hpp"
#include "backends/cuda/driver.hpp"
#include "backends/cuda/page_worker.hpp"

namespace lowtide::cuda {

/// The part of the port that is the same however the memory is got: contexts, bytes, waiting, host memory. Also plain
/// memory, for the portable backend.
class Device : public Backend, public PlainMemory {
 public:
  /// `driver` outlives it. `capabilities` and `reason` come from the probe.
  Device(const Driver& driver, DeviceId device, std::string device_name, Capabilities capabilities, std::string reason);
  ~Device() override;

  DeviceId device() const noexcept override { return device_; }
  const std::string& device_name() const noexcept override { return device_name_; }
  const std::string& reason() const noexcept override { return reason_; }
  const Capabilities& capabilities() const noexcept override { return capabilities_; }

  Status attach(ContextId context) override;
  void detach(ContextId context) noexcept override;

  Status copy_out(void* host, AddressRange range) override;
  Status copy_in(AddressRange range, const void* host) override;
  Status copy_within(AddressRange to, DeviceAddress from) override;
  Status fill(AddressRange range, std::uint8_t value) override;
  Status limit_copies(Bytes in_flight) override;
  Status finish_copies() override;
  Status digest(std::span<const AddressRange> pages, std::span<PageDigest> digests) override;
  Status fill_blank(std::span<const AddressRange> pages) override;
  Status count_blank(std::span<const AddressRange> pages, std::span<std::uint64_t> counts) override;
  const DigestKey& digest_key() const noexcept override { return workers_.key(); }
  Status synchronise() override;

  Status register_host(void* memory, Bytes size) override;
  Status unregister_host(void* memory) noexcept override;
  Result<MemoryInfo> memory_info() override;

  Result<DeviceAddress> allocate(Bytes size, ContextId context) override;
  Status free(DeviceAddress address, ContextId context) override;
  bool begins_at(DeviceAddress address) override;

 protected:
  const Driver& driver() const noexcept { return driver_; }

 private:
  static constexpr std::size_t most_contexts = 32;

  /// A live context of the device, with what copies use there.
  struct Lane {
    CUcontext context;
    Copier* copier;
  };
  /// Fixed in size: a free must not fail for want of host memory.
  struct Lanes {
    std::array<Lane, most_contexts> each{};
    std::size_t count = 0;
    std::span<const Lane> view() const noexcept { return {each.data(), count}; }
  };
  Lanes lanes() const noexcept;
  CUcontext live_or(ContextId context) const noexcept;
  /// Runs `call(lane)`, which answers with a result or a status, in a live context of the device; an error if there is
  /// none.
  template <class Call>
  Status in_context(const char* name, Call call) const;

  const Driver& driver_;
  const DeviceId device_;
  const std::string device_name_;
  const Capabilities capabilities_;
  const std::string reason_;
  PageWorkers workers_;
  mutable std::mutex mutex_;
  Lanes lanes_;
  std::mutex copying_;  ///< the copiers' counts; taken before `mutex_`
  /// Of the contexts that are seen live. They are used by one transition at a time, which no context's end meets.
  std::array<Copier, most_contexts> copiers_;
};

}  // namespace lowtide::cuda

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>

#include "backends/portable/recreated_memory.hpp"

namespace lowtide::portable {

/// What drivers give to a plain allocation at least, once it is not small.
constexpr Bytes granule = 2_MiB;

/// Places of one size stand in for each other, and few others are so large: their addresses come back as a set, where
/// those of many small ones, of many sizes, get lost among what comes and goes beside them.
constexpr Bytes slab = 64_MiB;

/// A larger block has an extent of whole steps. NVIDIA's driver (580.159.04) gets addresses from the host in steps of
/// this size, and puts other allocations into what an allocation leaves of its last step: then the step stays when that
/// one is freed, and no other can be had at its address.
constexpr Bytes address_step = Margins::alignment;

/// What a device can do without virtual memory management.
inline Capabilities plain_capabilities(bool gives_back, int host_node) {
  return {.stable_address = !gives_back,
          .gives_back = gives_back,
          .is_plain = true,
          .reserves_each = true,
          .host_node = host_node,
          .granularity = granule,
          .shared_extent = gives_back ? slab : granule,
          .extent_step = gives_back ? address_step : granule};
}

/// The port over plain allocations of a vendor's device, which is `VendorDevice` but for its memory: "recreate", where
/// a pause frees and a resume allocates again, and "off", where every block stays. Takes the memory of all devices,
/// which outlives it, and the arguments of `VendorDevice`, with plain_capabilities().
template <class VendorDevice>
class RecreateBackend final : public VendorDevice {
 public:
  template <class... Arguments>
  explicit RecreateBackend(RecreatedMemory& memory, Arguments&&... arguments)
      : VendorDevice(std::forward<Arguments>(arguments)...), memory_(memory) {}

  const char* name() const noexcept override { return this->capabilities().gives_back ? "recreate" : "off"; }

  Result<DeviceAddress> reserve(Bytes size, ContextId context) override {
    return memory_.reserve(*this, size, context);
  }
  Status release_reservation(AddressRange range) override { return memory_.release_reservation(range); }
  Result<PhysicalId> create(AddressRange range) override { return memory_.create(range); }
  Status release(PhysicalId physical) override { return memory_.release(physical); }
  Status keep_address(AddressRange range) override {
    memory_.keep_address(range);
    return {};
  }
  bool is_taken(DeviceAddress address) override { return memory_.is_taken(*this, address); }

  // Plain memory is where it is from its allocation on, and its peers reach it as the program has allowed. It leaves
  // with the unmap, up to which a pause can be undone.
  Status map(AddressRange range, PhysicalId physical) override { return memory_.check_held(range, physical); }
  Status unmap(AddressRange range) override { return memory_.free(range.start); }
  Status set_access(AddressRange, std::span<const DeviceId>) override { return {}; }
  bool has_host_backing() override { return false; }
  Result<PhysicalId> create_host(Bytes) override { return no_host_backing(); }
  Status set_read_access(AddressRange, std::span<const DeviceId>) override { return no_host_backing(); }

  Status finish_copies() override {
    auto status = VendorDevice::finish_copies();
    memory_.settle();
    return status;
  }
  Result<MemoryInfo> memory_info() override {
    memory_.give_back_rest();
    return VendorDevice::memory_info();
  }

 private:
  static Failure no_host_backing() { return fail(Code::unsupported, "plain memory has no host memory behind it"); }

  RecreatedMemory& memory_;
};

}  // namespace lowtide::portable

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <mutex>
#include <vector>

#include "backends/hip/device.hpp"

namespace lowtide::hip {

/// How virtual memory management has to be used on a device, as a trial found out.
struct VmmHabits {
  /// The most bytes of one physical handle, a multiple of the granularity; none: any size.
  std::optional<Bytes> chunk;
  /// A pause frees the address range and asks for the same again, since memory comes free with its range only.
  bool cycles = false;
};

/// The port over HIP's virtual memory management. Memory is made of handles of at most one chunk, and each of them is
/// unmapped by itself.
class VmmBackend final : public Device {
 public:
  /// The arguments of Device, with vmm_capabilities().
  VmmBackend(const Runtime& runtime, DeviceId device, std::string device_name, Capabilities capabilities,
             std::string reason, VmmHabits habits);

  const char* name() const noexcept override { return habits_.cycles ? "vmm+cycle" : "vmm"; }

  Result<DeviceAddress> reserve(Bytes size) override;
  Status release_reservation(AddressRange range) override;
  Result<PhysicalId> create(AddressRange range) override;
  Status release(PhysicalId physical) override;
  Status keep_address(AddressRange range) override;
  bool is_taken(DeviceAddress address) override;
  Status map(AddressRange range, PhysicalId physical) override;
  Status unmap(AddressRange range) override;
  Status set_access(AddressRange range, std::span<const DeviceId> peers) override;

 private:
  struct Chunk {
    hipMemGenericAllocationHandle_t handle;
    Bytes size;
    bool mapped = false;
  };
  /// What one `create` got. Used by one call at a time, as the port demands of the caller.
  struct Memory {
    std::vector<Chunk> chunks;               ///< fewer than there were, once a release failed half-way
    Bytes size;                              ///< with those
    DeviceAddress start{};                   ///< where it is mapped
    std::vector<hipMemAccessDesc> access{};  ///< as given since it was mapped
  };
  struct Reservation {
    Bytes size;
    bool lost = false;  ///< somebody else got the address
  };

  Status reserve_again(AddressRange range) const;
  Status add_chunk(Memory& memory, Bytes size) const;
  Status release_chunks(Memory& memory) const;
  Status map_chunks(Memory& memory, DeviceAddress start) const;
  Status unmap_chunks(Memory& memory) const;
  void put_back(Memory& memory) const;
  Memory* find(PhysicalId physical);
  Memory* mapped_at(DeviceAddress start);
  /// Runs `call(memory)` for each mapping that lies in `range`, in order, until one fails.
  template <class Call>
  Status for_each_mapped(AddressRange range, Call call);
  /// The reservation that `address` lies in; null if there is none. Under the lock.
  Reservation* reservation_at(DeviceAddress address);

  const VmmHabits habits_;
  std::mutex mutex_;                        ///< of the books, not of the runtime's calls
  std::map<std::uint64_t, Memory> memory_;  ///< by PhysicalId
  std::uint64_t next_id_ = 1;
  std::map<DeviceAddress, Memory*> mapped_;
  std::map<DeviceAddress, Reservation> reservations_;
};

/// `export_fd`: memory is asked for that can be exported. An error where the runtime names no granularity.
Result<Capabilities> vmm_capabilities(const Runtime& runtime, DeviceId device, VmmHabits habits, bool export_fd);

}  // namespace lowtide::hip

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <mutex>
#include <vector>

#include "allocator/core/held_addresses.hpp"
#include "backends/hip/device.hpp"

namespace lowtide::hip {

/// How virtual memory management has to be used on a device, as a trial found out.
struct VmmHabits {
  /// The most bytes of one physical handle, a multiple of the granularity; none: any size.
  std::optional<Bytes> chunk;
  /// A pause frees the address range and asks for the same again, since memory comes free with its range only.
  bool cycles = false;
};

/// The address ranges of all devices of the process, which share one address space: a range that one has lost, and
/// wants back, is not given to a block of another.
struct Reservations {
  struct Range {
    Bytes size;
    bool lost = false;     ///< asked for again in vain
    HeldAddresses held{};  ///< of a lost one, unless somebody else got it
  };

  /// The one that `address` lies in; null if there is none. Under the lock.
  Range* at(DeviceAddress address);
  /// Whether one of them, lost or not, has some of the range. Under the lock.
  bool meet(AddressRange range);

  std::mutex mutex;  ///< also across the runtime's calls that give an address up and ask for it again
  std::map<DeviceAddress, Range> ranges;
};

/// The port over HIP's virtual memory management. Memory is made of handles of at most one chunk, and each of them is
/// unmapped by itself.
class VmmBackend final : public Device {
 public:
  /// `reservations` outlives it. Then the arguments of Device, with vmm_capabilities().
  VmmBackend(Reservations& reservations, const Runtime& runtime, DeviceId device, std::string device_name,
             Capabilities capabilities, std::string reason, VmmHabits habits);

  const char* name() const noexcept override { return habits_.cycles ? "vmm+cycle" : "vmm"; }

  Result<DeviceAddress> reserve(Bytes size, ContextId context) override;
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
    std::vector<Chunk> chunks;
    Bytes size;             ///< of the chunks: less than wanted, once a creation or a release failed half-way
    DeviceAddress start{};  ///< where it is mapped, or was: chunks that could not be unmapped are there still
    bool mapped = false;    ///< all of it, as the port sees it
    std::vector<hipMemAccessDesc> access{};  ///< as given since it was mapped
    AddressRange left{};                     ///< under the lock: where chunks of what counts as unmapped still are
  };

  /// Asks for the range that was given up. In vain, it is lost, and held until the next try.
  Status reserve_again(DeviceAddress start, Reservations::Range& range) const;
  /// One more handle on the way to `wanted` bytes.
  Status add_chunk(Memory& memory, Bytes size, Bytes wanted) const;
  Status complete(Memory& memory, Bytes size) const;
  Status release_chunks(Memory& memory) const;
  Status map_chunks(Memory& memory, DeviceAddress start);
  Status unmap_chunks(Memory& memory);
  /// Writes down whether chunks are mapped although the port sees none of it mapped.
  void note_left(Memory& memory);
  Memory* left_at(AddressRange range, const Memory& wanted);
  /// Takes away what memory other than `wanted`, whose unmap could not be finished, has left in the range.
  Status clear(AddressRange range, const Memory& wanted);
  Status put_back(Memory& memory) const;
  Memory* find(PhysicalId physical);
  Memory* mapped_at(DeviceAddress start);
  /// Runs `call(memory)` for each mapping that lies in `range`, in order, until one fails.
  template <class Call>
  Status for_each_mapped(AddressRange range, Call call);

  Reservations& reservations_;
  const VmmHabits habits_;
  std::mutex mutex_;                        ///< of the books, not of the runtime's calls
  std::map<std::uint64_t, Memory> memory_;  ///< by PhysicalId
  std::uint64_t next_id_ = 1;
  std::map<DeviceAddress, Memory*> mapped_;
};

/// `export_fd`: memory is asked for that can be exported. An error where the runtime names no granularity.
Result<Capabilities> vmm_capabilities(const Runtime& runtime, DeviceId device, VmmHabits habits, bool export_fd);

}  // namespace lowtide::hip

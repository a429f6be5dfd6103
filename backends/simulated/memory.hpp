// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <shared_mutex>
#include <unordered_map>
#include <utility>

#include "allocator/base/unique_fd.hpp"
#include "backends/simulated/capacity.hpp"
#include "backends/simulated/cuda_abi.hpp"

namespace lowtide::sim {

/// Where memory lies and who may touch it: a device, or the host behind the last of them.
constexpr int host_place = most_devices;
constexpr int place_of(const CUmemLocation& location) {
  return location.type == CU_MEM_LOCATION_TYPE_DEVICE ? location.id : host_place;
}

/// Physical memory: what one cuMemCreate or one import got. It lives while it has a reference or a mapping.
struct Physical {
  CUmemGenericAllocationHandle handle = 0;
  CUmemAllocationProp properties{};
  std::uint64_t size = 0;
  std::uint64_t charged = 0;  ///< 0 for an import, whose bytes are in the exporter's share, and for the host's
  std::uint64_t offset = 0;   ///< in the file
  UniqueFd own_file;          ///< once exported, or imported; before, it is a piece of the device's file
  std::uint64_t references = 0;
  std::uint64_t mappings = 0;

  int place() const { return place_of(properties.location); }
};
using PhysicalPtr = std::shared_ptr<Physical>;

struct Mapping {
  std::uint64_t size = 0;
  PhysicalPtr physical;
  std::array<std::uint8_t, host_place + 1> access{};  ///< CUmemAccess_flags by place

  int protection() const;
};

/// What cuMemAlloc and its kind gave out.
struct Block {
  std::uint64_t size = 0;     ///< as asked for
  std::uint64_t charged = 0;  ///< 0 for managed memory, whose home is the host
  int device = 0;
  ContextId context = 0;
  bool managed = false;
  bool global = false;  ///< a module's variable, which no program frees
};

/// Page-locked host memory: allocated here, or the host's and registered.
struct HostRange {
  std::uint64_t size = 0;
  bool allocated = false;
  int device = 0;
  ContextId context = 0;
};

/// What is at an address, for queries.
struct Place {
  enum class Kind { block, host, mapping, reservation } kind;
  Address base;
  std::uint64_t size;
  int device;
  ContextId context;  ///< 0 for VMM memory
  bool managed = false;
  CUmemGenericAllocationHandle physical = 0;
  unsigned handle_types = 0;  ///< CUmemAllocationHandleType bits
  Address reservation = 0;
  std::uint64_t reservation_size = 0;
};

/// Who touches memory: the device that runs the work, and its context.
struct Actor {
  ContextId context = 0;
  int device = 0;
  bool kernel = false;  ///< kernels need access of their own device; the copy engine reaches any device's memory
};

/// A range that work is about to touch.
struct Touch {
  Address address;
  std::uint64_t size;
  bool write;
};

/// All memory of the simulated devices, and who may touch it. One lock: changes take it alone, work takes it shared for
/// a piece at a time, so that taking memory away under running work ends in an error of that work, not in a crash.
/// Functions answer what the driver would. Thread-safe.
class Memory {
 public:
  explicit Memory(Capacity& capacity) : capacity_(capacity) {}

  // Virtual memory management.
  CUresult reserve(Address* out, std::uint64_t size, std::uint64_t alignment, Address hint);
  CUresult release_reservation(Address address, std::uint64_t size);
  CUresult create(CUmemGenericAllocationHandle* out, std::uint64_t size, const CUmemAllocationProp& properties);
  CUresult release(CUmemGenericAllocationHandle handle);
  CUresult map(Address address, std::uint64_t size, std::uint64_t offset, CUmemGenericAllocationHandle handle);
  CUresult unmap(Address address, std::uint64_t size);
  CUresult set_access(Address address, std::uint64_t size, const CUmemAccessDesc* access, std::size_t count);
  CUresult get_access(unsigned long long* flags, const CUmemLocation& location, Address address);
  CUresult retain_at(CUmemGenericAllocationHandle* out, Address address);
  CUresult properties_of(CUmemAllocationProp* out, CUmemGenericAllocationHandle handle);
  CUresult export_file(int* out, CUmemGenericAllocationHandle handle);
  CUresult import_file(CUmemGenericAllocationHandle* out, int file, int devices);

  // Plain memory.
  CUresult allocate(Address* out, std::uint64_t size, int device, ContextId context, bool managed);
  /// A variable of a module; it costs the device nothing.
  CUresult allocate_global(Address* out, std::uint64_t size, int device, ContextId context);
  std::optional<Block> block_at(Address base);
  CUresult free(Address base);
  CUresult host_allocate(void** out, std::uint64_t size, int device, ContextId context);
  CUresult host_free(void* memory);
  CUresult host_register(void* memory, std::uint64_t size, int device, ContextId context);
  CUresult host_unregister(void* memory);
  /// Frees what a destroyed context owned: blocks, host memory, registrations. VMM memory belongs to nobody's context.
  void drop_context(ContextId context);

  // Peers: `accessor`'s kernels may touch the blocks of `owner`.
  bool enable_peer(ContextId accessor, ContextId owner);
  bool disable_peer(ContextId accessor, ContextId owner);

  // Work.
  /// Runs `work` while nothing can take the touched ranges away; CUDA_ERROR_ILLEGAL_ADDRESS and nothing done if one of
  /// them is not all there for `actor`.
  CUresult access(const Actor& actor, std::initializer_list<Touch> touches, const std::function<void()>& work);
  /// True if the range lies in memory of a device, a reservation or page-locked memory, accessible or not.
  bool known(Address address, std::uint64_t size);
  bool page_locked(Address address, std::uint64_t size);

  // Queries.
  std::optional<Place> find(Address address);
  struct Counts {
    std::uint64_t physical, mappings, reservations, blocks, host_registrations, host_allocations;
  };
  Counts counts();

 private:
  using Mappings = std::map<Address, Mapping>;

  Mappings::iterator whole_mappings(Address address, std::uint64_t size);
  PhysicalPtr find_physical(CUmemGenericAllocationHandle handle);
  PhysicalPtr add_physical(std::uint64_t size, const CUmemAllocationProp& properties);
  void drop_if_unused(const PhysicalPtr& physical);
  UniqueFd& file_at(int place);
  int file_of(Physical& physical);
  bool give_own_file(Physical& physical);
  PhysicalPtr find_by_file(int file);

  bool reachable(const Actor& actor, const Touch& touch) const;
  bool mapped(const Actor& actor, const Touch& touch) const;
  bool known_locked(Address address, std::uint64_t size) const;
  std::optional<Place> find_vmm(Address address) const;

  Capacity& capacity_;
  std::shared_mutex mutex_;
  std::map<Address, std::uint64_t> reservations_;  ///< size by address
  Mappings mappings_;
  std::map<CUmemGenericAllocationHandle, PhysicalPtr> physical_;
  CUmemGenericAllocationHandle next_handle_ = 0x6d0000000010;
  std::array<UniqueFd, host_place + 1> files_;
  std::array<std::uint64_t, host_place + 1> next_offset_{};
  std::map<Address, Block> blocks_;
  std::map<Address, HostRange> host_;
  std::set<std::pair<ContextId, ContextId>> peers_;
};

/// The entry of an address-ordered map that contains `address`, or end. Entries have a size() through `size_of`.
template <class Map, class SizeOf>
auto containing(Map& map, Address address, SizeOf size_of) {
  auto entry = map.upper_bound(address);
  if (entry == map.begin()) return map.end();
  --entry;
  return address - entry->first < size_of(entry->second) ? entry : map.end();
}

inline std::uint64_t size_of(std::uint64_t size) { return size; }
template <class Range>
std::uint64_t size_of(const Range& range) {
  return range.size;
}
template <class Map>
auto containing(Map& map, Address address) {
  return containing(map, address, [](const auto& range) { return size_of(range); });
}

}  // namespace lowtide::sim

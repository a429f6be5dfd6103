// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/mman.h>

#include <algorithm>
#include <mutex>

#include "backends/simulated/address_space.hpp"
#include "backends/simulated/memory.hpp"

namespace lowtide::sim {
namespace {

/// Each place's file is this large and sparse: offsets are never used twice, so that a freed piece cannot be reached.
constexpr std::uint64_t file_size = std::uint64_t{1} << 60;

bool is_whole(std::uint64_t value) { return value % granularity == 0; }

}  // namespace

int Mapping::protection() const {
  std::uint8_t most = CU_MEM_ACCESS_FLAGS_PROT_NONE;
  for (const auto flags : access) most |= flags;
  if (most == CU_MEM_ACCESS_FLAGS_PROT_READWRITE) return PROT_READ | PROT_WRITE;
  return most == CU_MEM_ACCESS_FLAGS_PROT_READ ? PROT_READ : PROT_NONE;
}

CUresult Memory::reserve(Address* out, std::uint64_t size, std::uint64_t alignment, Address hint) {
  if (alignment < granularity) alignment = granularity;
  const bool power_of_two = (alignment & (alignment - 1)) == 0;
  if (out == nullptr || size == 0 || !is_whole(size) || !power_of_two) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(mutex_);
  const auto address = reserve_addresses(size, alignment, hint);
  if (address == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  reservations_.emplace(address, size);
  *out = address;
  return CUDA_SUCCESS;
}

CUresult Memory::release_reservation(Address address, std::uint64_t size) {
  const std::lock_guard lock(mutex_);
  const auto reservation = reservations_.find(address);
  if (reservation == reservations_.end() || reservation->second != size) return CUDA_ERROR_INVALID_VALUE;
  const auto mapping = mappings_.lower_bound(address);
  if (mapping != mappings_.end() && mapping->first < address + size) return CUDA_ERROR_INVALID_VALUE;
  release_addresses(address, size);
  reservations_.erase(reservation);
  return CUDA_SUCCESS;
}

UniqueFd& Memory::file_at(int place) {
  auto& file = files_[static_cast<std::size_t>(place)];
  if (!file) file = make_memory_file("lowtide-sim", file_size);
  return file;
}

int Memory::file_of(Physical& physical) {
  return physical.own_file ? physical.own_file.get() : file_at(physical.place()).get();
}

PhysicalPtr Memory::add_physical(std::uint64_t size, const CUmemAllocationProp& properties) {
  auto physical = std::make_shared<Physical>();
  physical->handle = next_handle_;
  physical->properties = properties;
  physical->size = size;
  physical->references = 1;
  physical_.emplace(physical->handle, physical);
  next_handle_ += 16;
  return physical;
}

CUresult Memory::create(CUmemGenericAllocationHandle* out, std::uint64_t size, const CUmemAllocationProp& properties) {
  if (out == nullptr || size == 0 || !is_whole(size)) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(mutex_);
  const int place = place_of(properties.location);
  const bool charged = place != host_place;
  if (!file_at(place)) return CUDA_ERROR_OUT_OF_MEMORY;
  if (charged && !capacity_.take(place, size)) return CUDA_ERROR_OUT_OF_MEMORY;
  const auto physical = add_physical(size, properties);
  auto& offset = next_offset_[static_cast<std::size_t>(place)];
  physical->offset = offset;
  physical->charged = charged ? size : 0;
  offset += size;
  *out = physical->handle;
  return CUDA_SUCCESS;
}

PhysicalPtr Memory::find_physical(CUmemGenericAllocationHandle handle) {
  const auto found = physical_.find(handle);
  // Memory that only mappings keep alive has no valid handle until someone retains it again.
  return found == physical_.end() || found->second->references == 0 ? nullptr : found->second;
}

void Memory::drop_if_unused(const PhysicalPtr& physical) {
  if (physical->references != 0 || physical->mappings != 0) return;
  if (!physical->own_file) discard_pages(file_at(physical->place()).get(), physical->offset, physical->size);
  if (physical->charged != 0) capacity_.give_back(physical->place(), physical->charged);
  physical_.erase(physical->handle);
}

CUresult Memory::release(CUmemGenericAllocationHandle handle) {
  const std::lock_guard lock(mutex_);
  const auto physical = find_physical(handle);
  if (!physical) return CUDA_ERROR_INVALID_VALUE;
  --physical->references;
  drop_if_unused(physical);
  return CUDA_SUCCESS;
}

CUresult Memory::map(Address address, std::uint64_t size, std::uint64_t offset, CUmemGenericAllocationHandle handle) {
  const std::lock_guard lock(mutex_);
  const auto physical = find_physical(handle);
  if (!physical || offset != 0 || size != physical->size || !is_whole(address)) return CUDA_ERROR_INVALID_VALUE;
  const auto reservation = containing(reservations_, address);
  if (reservation == reservations_.end()) return CUDA_ERROR_INVALID_VALUE;
  if (size > reservation->first + reservation->second - address) return CUDA_ERROR_INVALID_VALUE;
  if (containing(mappings_, address) != mappings_.end()) return CUDA_ERROR_INVALID_VALUE;
  const auto next = mappings_.lower_bound(address);
  if (next != mappings_.end() && next->first < address + size) return CUDA_ERROR_INVALID_VALUE;
  const auto mapping = mappings_.emplace(address, Mapping{size, physical, {}}).first;
  if (!map_file(address, size, file_of(*physical), physical->offset, PROT_NONE)) {
    mappings_.erase(mapping);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  ++physical->mappings;
  return CUDA_SUCCESS;
}

/// The first of the mappings that exactly fill the range; end if they do not.
Memory::Mappings::iterator Memory::whole_mappings(Address address, std::uint64_t size) {
  const auto first = mappings_.find(address);
  auto expected = address;
  for (auto mapping = first; mapping != mappings_.end() && mapping->first == expected; ++mapping) {
    expected += mapping->second.size;
    if (expected >= address + size) break;
  }
  return size != 0 && expected == address + size ? first : mappings_.end();
}

CUresult Memory::unmap(Address address, std::uint64_t size) {
  const std::lock_guard lock(mutex_);
  auto mapping = whole_mappings(address, size);
  if (mapping == mappings_.end()) return CUDA_ERROR_INVALID_VALUE;
  if (!map_nothing(address, size)) return CUDA_ERROR_UNKNOWN;
  while (mapping != mappings_.end() && mapping->first < address + size) {
    const auto physical = mapping->second.physical;
    mapping = mappings_.erase(mapping);
    --physical->mappings;
    drop_if_unused(physical);
  }
  return CUDA_SUCCESS;
}

CUresult Memory::set_access(Address address, std::uint64_t size, const CUmemAccessDesc* access, std::size_t count) {
  const std::lock_guard lock(mutex_);
  const auto first = whole_mappings(address, size);
  if (first == mappings_.end()) return CUDA_ERROR_INVALID_VALUE;
  const auto wants_host = [](const CUmemAccessDesc& each) { return place_of(each.location) == host_place; };
  if (std::any_of(access, access + count, wants_host) && first->second.physical->place() != host_place) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  for (auto mapping = first; mapping != mappings_.end() && mapping->first < address + size; ++mapping) {
    for (std::size_t i = 0; i < count; ++i) {
      const auto place = static_cast<std::size_t>(place_of(access[i].location));
      mapping->second.access[place] = static_cast<std::uint8_t>(access[i].flags);
    }
    if (!protect(mapping->first, mapping->second.size, mapping->second.protection())) return CUDA_ERROR_UNKNOWN;
  }
  return CUDA_SUCCESS;
}

CUresult Memory::get_access(unsigned long long* flags, const CUmemLocation& location, Address address) {
  const std::shared_lock lock(mutex_);
  const auto mapping = containing(mappings_, address);
  if (mapping == mappings_.end()) return CUDA_ERROR_INVALID_VALUE;
  *flags = mapping->second.access[static_cast<std::size_t>(place_of(location))];
  return CUDA_SUCCESS;
}

CUresult Memory::retain_at(CUmemGenericAllocationHandle* out, Address address) {
  const std::lock_guard lock(mutex_);
  const auto mapping = containing(mappings_, address);
  if (out == nullptr || mapping == mappings_.end()) return CUDA_ERROR_INVALID_VALUE;
  ++mapping->second.physical->references;
  *out = mapping->second.physical->handle;
  return CUDA_SUCCESS;
}

CUresult Memory::properties_of(CUmemAllocationProp* out, CUmemGenericAllocationHandle handle) {
  const std::shared_lock lock(mutex_);
  const auto physical = find_physical(handle);
  if (out == nullptr || !physical) return CUDA_ERROR_INVALID_VALUE;
  *out = physical->properties;
  return CUDA_SUCCESS;
}

}  // namespace lowtide::sim

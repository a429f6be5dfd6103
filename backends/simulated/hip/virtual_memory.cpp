// SPDX-License-Identifier: Apache-2.0
#include "backends/simulated/hip/virtual_memory.hpp"

#include <fcntl.h>

#include <utility>

namespace lowtide::sim::hip {

CUresult VirtualMemory::reserve(CUdeviceptr* out, std::size_t size, std::size_t alignment, CUdeviceptr hint) {
  const std::lock_guard lock(mutex_);
  const bool elsewhere = persona_->moves_addresses && hint != 0;
  const auto result = elsewhere ? reserve_elsewhere(out, size, alignment, hint)
                                : driver_.cuMemAddressReserve(out, size, alignment, hint, 0);
  if (result == CUDA_SUCCESS) reservations_[*out] = {size, {}};
  return result;
}

CUresult VirtualMemory::reserve_elsewhere(CUdeviceptr* out, std::size_t size, std::size_t alignment, CUdeviceptr hint) {
  if (const auto result = driver_.cuMemAddressReserve(out, size, alignment, 0, 0);
      result != CUDA_SUCCESS || *out != hint)
    return result;
  // The driver chose that very address by itself: while it is taken, another comes.
  const auto result = driver_.cuMemAddressReserve(out, size, alignment, 0, 0);
  (void)driver_.cuMemAddressFree(hint, size);
  return result;
}

CUresult VirtualMemory::free_reservation(CUdeviceptr address, std::size_t size) {
  const std::lock_guard lock(mutex_);
  const auto result = driver_.cuMemAddressFree(address, size);
  if (result != CUDA_SUCCESS) return result;
  if (const auto freed = reservations_.extract(address); !freed.empty()) release_all(freed.mapped().kept);
  return result;
}

CUresult VirtualMemory::create(CUmemGenericAllocationHandle* out, std::size_t size,
                               const CUmemAllocationProp& properties) {
  if (size > persona_->largest_handle) return CUDA_ERROR_OUT_OF_MEMORY;
  Descriptor descriptor;
  if (persona_->descriptor_per_handle) {
    descriptor.file = UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    if (!descriptor.file) return CUDA_ERROR_OUT_OF_MEMORY;
  }
  const std::lock_guard lock(mutex_);
  const auto result = driver_.cuMemCreate(out, size, &properties, 0);
  if (result == CUDA_SUCCESS && descriptor.file) descriptors_.emplace(*out, std::move(descriptor));
  return result;
}

CUresult VirtualMemory::release(CUmemGenericAllocationHandle handle) {
  const std::lock_guard lock(mutex_);
  const auto result = driver_.cuMemRelease(handle);
  const auto descriptor = descriptors_.find(handle);
  if (result == CUDA_SUCCESS && descriptor != descriptors_.end() && --descriptor->second.references == 0) {
    descriptors_.erase(descriptor);
  }
  return result;
}

CUresult VirtualMemory::map(CUdeviceptr address, std::size_t size, std::size_t offset,
                            CUmemGenericAllocationHandle handle) {
  const std::lock_guard lock(mutex_);
  const auto result = driver_.cuMemMap(address, size, offset, handle, 0);
  if (result == CUDA_SUCCESS) mappings_[address] = size;
  return result;
}

CUresult VirtualMemory::unmap(CUdeviceptr address, std::size_t size) {
  const std::lock_guard lock(mutex_);
  const auto first = mappings_.find(address);
  if (first == mappings_.end()) return CUDA_ERROR_INVALID_VALUE;
  if (persona_->largest_handle != UINT64_MAX && first->second != size) return CUDA_ERROR_INVALID_VALUE;
  Handles kept;
  Reservation* const reservation = persona_->keeps_pages ? reservation_at(address) : nullptr;
  auto result = reservation == nullptr ? CUDA_SUCCESS : retain_all(address, size, kept);
  if (result == CUDA_SUCCESS) result = driver_.cuMemUnmap(address, size);
  if (result != CUDA_SUCCESS) {
    release_all(kept);
    return result;
  }
  if (reservation != nullptr) reservation->kept.insert(reservation->kept.end(), kept.begin(), kept.end());
  mappings_.erase(first, mappings_.lower_bound(address + size));
  return result;
}

CUresult VirtualMemory::retain_all(CUdeviceptr address, std::size_t size, Handles& out) {
  const auto end = mappings_.lower_bound(address + size);
  for (auto mapping = mappings_.find(address); mapping != end; ++mapping) {
    CUmemGenericAllocationHandle handle = 0;
    const auto result = driver_.cuMemRetainAllocationHandle(&handle, pointer_to(mapping->first));
    if (result != CUDA_SUCCESS) return result;
    out.push_back(handle);
  }
  return CUDA_SUCCESS;
}

void VirtualMemory::release_all(const Handles& handles) {
  for (const auto handle : handles) (void)driver_.cuMemRelease(handle);
}

CUresult VirtualMemory::retain_at(CUmemGenericAllocationHandle* out, CUdeviceptr address) {
  const std::lock_guard lock(mutex_);
  const auto result = driver_.cuMemRetainAllocationHandle(out, pointer_to(address));
  if (result != CUDA_SUCCESS) return result;
  if (const auto descriptor = descriptors_.find(*out); descriptor != descriptors_.end())
    ++descriptor->second.references;
  return result;
}

bool VirtualMemory::shows_to_others(CUdeviceptr address) {
  if (!persona_->ipc_on_vmm) return false;
  const std::lock_guard lock(mutex_);
  auto mapping = mappings_.upper_bound(address);
  return mapping != mappings_.begin() && address - std::prev(mapping)->first < std::prev(mapping)->second;
}

VirtualMemory::Reservation* VirtualMemory::reservation_at(CUdeviceptr address) {
  const auto next = reservations_.upper_bound(address);
  if (next == reservations_.begin()) return nullptr;
  auto& [start, reservation] = *std::prev(next);
  return address - start < reservation.size ? &reservation : nullptr;
}

}  // namespace lowtide::sim::hip

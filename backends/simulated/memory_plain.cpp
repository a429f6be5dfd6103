// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <mutex>

#include "backends/simulated/address_space.hpp"
#include "backends/simulated/memory.hpp"

namespace lowtide::sim {
namespace {

Address address_of(const void* memory) { return reinterpret_cast<Address>(memory); }

/// As NVIDIA's driver aligns (580.159.04); it takes those of less than 32 MiB from what it has got before.
std::uint64_t plain_alignment(std::uint64_t size) {
  constexpr std::uint64_t large = 32 << 20;
  if (size >= large) return large;
  return size >= granularity ? granularity : page;
}

}  // namespace

CUresult Memory::allocate(Address* out, std::uint64_t size, int device, ContextId context, bool managed) {
  if (out == nullptr || size == 0) return CUDA_ERROR_INVALID_VALUE;
  if (size > capacity_.total()) return CUDA_ERROR_OUT_OF_MEMORY;
  const auto pages = round_up_to(size, page);
  const auto charged = managed ? 0 : pages;
  const std::lock_guard lock(mutex_);
  if (charged != 0 && !capacity_.take(device, charged)) return CUDA_ERROR_OUT_OF_MEMORY;
  const auto address = map_memory(pages, plain_alignment(pages));
  if (address == 0) {
    if (charged != 0) capacity_.give_back(device, charged);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  blocks_.emplace(address, Block{size, charged, device, context, managed});
  *out = address;
  return CUDA_SUCCESS;
}

CUresult Memory::allocate_global(Address* out, std::uint64_t size, int device, ContextId context) {
  const std::lock_guard lock(mutex_);
  const auto address = map_memory(round_up_to(size, page));
  if (address == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  blocks_.emplace(address, Block{size, 0, device, context, false, true});
  *out = address;
  return CUDA_SUCCESS;
}

std::optional<Block> Memory::block_at(Address base) {
  const std::shared_lock lock(mutex_);
  const auto block = blocks_.find(base);
  if (block == blocks_.end()) return std::nullopt;
  return block->second;
}

CUresult Memory::free(Address base) {
  const std::lock_guard lock(mutex_);
  const auto block = blocks_.find(base);
  if (block == blocks_.end()) return CUDA_ERROR_INVALID_VALUE;
  release_addresses(base, round_up_to(block->second.size, page));
  if (block->second.charged != 0) capacity_.give_back(block->second.device, block->second.charged);
  blocks_.erase(block);
  return CUDA_SUCCESS;
}

CUresult Memory::host_allocate(void** out, std::uint64_t size, int device, ContextId context) {
  if (out == nullptr || size == 0) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(mutex_);
  const auto address = map_memory(round_up_to(size, page));
  if (address == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  host_.emplace(address, HostRange{size, true, device, context});
  *out = reinterpret_cast<void*>(address);
  return CUDA_SUCCESS;
}

CUresult Memory::host_free(void* memory) {
  const std::lock_guard lock(mutex_);
  const auto range = host_.find(address_of(memory));
  if (range == host_.end() || !range->second.allocated) return CUDA_ERROR_INVALID_VALUE;
  release_addresses(range->first, round_up_to(range->second.size, page));
  host_.erase(range);
  return CUDA_SUCCESS;
}

CUresult Memory::host_register(void* memory, std::uint64_t size, int device, ContextId context) {
  if (memory == nullptr || size == 0) return CUDA_ERROR_INVALID_VALUE;
  const auto address = address_of(memory);
  const std::lock_guard lock(mutex_);
  const auto next = host_.lower_bound(address);
  const bool overlaps =
      containing(host_, address) != host_.end() || (next != host_.end() && next->first - address < size);
  if (overlaps) return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  host_.emplace(address, HostRange{size, false, device, context});
  return CUDA_SUCCESS;
}

CUresult Memory::host_unregister(void* memory) {
  const std::lock_guard lock(mutex_);
  const auto range = host_.find(address_of(memory));
  if (range == host_.end() || range->second.allocated) return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
  host_.erase(range);
  return CUDA_SUCCESS;
}

void Memory::drop_context(ContextId context) {
  const std::lock_guard lock(mutex_);
  for (auto block = blocks_.begin(); block != blocks_.end();) {
    if (block->second.context != context) {
      ++block;
      continue;
    }
    release_addresses(block->first, round_up_to(block->second.size, page));
    if (block->second.charged != 0) capacity_.give_back(block->second.device, block->second.charged);
    block = blocks_.erase(block);
  }
  for (auto range = host_.begin(); range != host_.end();) {
    if (range->second.context != context) {
      ++range;
      continue;
    }
    if (range->second.allocated) release_addresses(range->first, round_up_to(range->second.size, page));
    range = host_.erase(range);
  }
  std::erase_if(peers_, [&](const auto& pair) { return pair.first == context || pair.second == context; });
}

bool Memory::enable_peer(ContextId accessor, ContextId owner) {
  const std::lock_guard lock(mutex_);
  return peers_.emplace(accessor, owner).second;
}

bool Memory::disable_peer(ContextId accessor, ContextId owner) {
  const std::lock_guard lock(mutex_);
  return peers_.erase({accessor, owner}) != 0;
}

Memory::Counts Memory::counts() {
  const std::shared_lock lock(mutex_);
  Counts counts{physical_.size(), mappings_.size(), reservations_.size(), 0, 0, 0};
  for (const auto& [address, block] : blocks_) counts.blocks += block.global ? 0 : 1;
  for (const auto& [address, range] : host_) ++(range.allocated ? counts.host_allocations : counts.host_registrations);
  return counts;
}

}  // namespace lowtide::sim

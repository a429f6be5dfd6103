// SPDX-License-Identifier: Apache-2.0
//
// What the driver is asked about an address. Of a block's mapping it says too little: a parked block has none, and a
// resident one is known to it as the extent that holds it, without a context.
#include <cstring>

#include "shim/preload/door.hpp"
#include "shim/preload/driver.hpp"
#include "shim/preload/hooks.hpp"

namespace lowtide::preload {
namespace {

template <typename Value>
bool write(void* data, Value value) noexcept {
  std::memcpy(data, &value, sizeof value);
  return true;
}

// What differs from the driver's answer even while the block is resident.
bool answer_range(const lowtide_block_view& block, CUpointer_attribute attribute, void* data) noexcept {
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT: return write(data, block.context);  // a pointer, of the same size
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR: return write(data, static_cast<CUdeviceptr>(block.address));
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE: return write(data, static_cast<size_t>(block.size));
    default: return false;
  }
}

// What the driver would answer of the same block if it were resident. Its booleans are written as 32 bits.
bool answer_parked(const lowtide_block_view& block, CUpointer_attribute attribute, CUdeviceptr address,
                   void* data) noexcept {
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE: return write(data, static_cast<unsigned int>(CU_MEMORYTYPE_DEVICE));
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER: return write(data, address);
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: return write(data, block.device);
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE: return write(data, 0U);
    case CU_POINTER_ATTRIBUTE_MAPPED: return write(data, 1U);
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
      return write(data, static_cast<unsigned int>(CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE));
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE: return write(data, std::uintptr_t{0});  // none
    default: return false;
  }
}

bool answer(const lowtide_block_view& block, CUpointer_attribute attribute, CUdeviceptr address, void* data) noexcept {
  if (answer_range(block, attribute, data)) return true;
  return block.resident == 0 && answer_parked(block, attribute, address, data);
}

}  // namespace

CUresult hook_cuMemGetAddressRange_v2(CUdeviceptr* base, size_t* size, CUdeviceptr address) {
  lowtide_block_view block;
  if (door(LOWTIDE_CUDA).find_block(address, &block) == 0)
    return real<Symbol::cuMemGetAddressRange_v2>(base, size, address);
  if (base != nullptr) *base = block.address;
  if (size != nullptr) *size = block.size;
  return CUDA_SUCCESS;
}

CUresult hook_cuPointerGetAttribute(void* data, CUpointer_attribute attribute, CUdeviceptr address) {
  lowtide_block_view block;
  if (data != nullptr && door(LOWTIDE_CUDA).find_block(address, &block) != 0 &&
      answer(block, attribute, address, data)) {
    return CUDA_SUCCESS;
  }
  return real<Symbol::cuPointerGetAttribute>(data, attribute, address);
}

CUresult hook_cuPointerGetAttributes(unsigned int count, CUpointer_attribute* attributes, void** data,
                                     CUdeviceptr address) {
  const CUresult result = real<Symbol::cuPointerGetAttributes>(count, attributes, data, address);
  lowtide_block_view block;
  if (attributes == nullptr || data == nullptr || door(LOWTIDE_CUDA).find_block(address, &block) == 0) return result;
  if (result != CUDA_SUCCESS && block.resident != 0) return result;
  for (unsigned int i = 0; i < count; ++i) {
    if (data[i] != nullptr) answer(block, attributes[i], address, data[i]);
  }
  return CUDA_SUCCESS;
}

}  // namespace lowtide::preload

// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "backends/simulated/simulator.hpp"

using namespace lowtide::sim;

namespace {

template <class Value>
CUresult put(void* out, Value value) {
  std::memcpy(out, &value, sizeof value);
  return CUDA_SUCCESS;
}

CUresult put_range(void* out, CUpointer_attribute attribute, const Place& place) {
  const bool virtual_memory = place.reservation != 0;
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      return put(out, static_cast<CUdeviceptr>(virtual_memory ? place.reservation : place.base));
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      return put(out, static_cast<std::size_t>(virtual_memory ? place.reservation_size : place.size));
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR: return put(out, static_cast<CUdeviceptr>(place.base));
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE: return put(out, static_cast<std::size_t>(place.size));
    case CU_POINTER_ATTRIBUTE_MAPPED: return put(out, place.kind != Place::Kind::reservation);
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
      return put(out, static_cast<unsigned long long>(place.handle_types));
    default: return CUDA_ERROR_NOT_SUPPORTED;
  }
}

CUresult put_attribute(void* out, CUpointer_attribute attribute, const Place& place, Address address) {
  const bool host = place.kind == Place::Kind::host;
  const bool nothing = place.kind == Place::Kind::reservation;
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT: return put(out, place.context);
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      if (nothing) return CUDA_ERROR_INVALID_VALUE;
      return put(out, static_cast<unsigned>(host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE));
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER: return put(out, static_cast<CUdeviceptr>(address));
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      if (!host && !place.managed) return CUDA_ERROR_INVALID_VALUE;
      return put(out, reinterpret_cast<void*>(address));
    case CU_POINTER_ATTRIBUTE_IS_MANAGED: return put(out, static_cast<unsigned>(place.managed));
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: return nothing ? CUDA_ERROR_INVALID_VALUE : put(out, place.device);
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
      return put(out, static_cast<unsigned>(place.kind == Place::Kind::block && !place.managed));
    case CU_POINTER_ATTRIBUTE_BUFFER_ID: return put(out, static_cast<unsigned long long>(place.base));
    default: return put_range(out, attribute, place);
  }
}

/// The bytes of an attribute's value, for the answer "nothing known".
std::size_t size_of_attribute(CUpointer_attribute attribute) {
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE: return 4;
    case CU_POINTER_ATTRIBUTE_MAPPED: return 1;
    default: return 8;
  }
}

}  // namespace

extern "C" {

CUresult cuMemGetAddressRange_v2(CUdeviceptr* base, size_t* size, CUdeviceptr address) {
  return with_context(Function::cuMemGetAddressRange_v2, [&](Simulator& simulator, const ContextPtr&) {
    const auto place = simulator.memory.find(address);
    if (!place || place->kind == Place::Kind::reservation) return CUDA_ERROR_NOT_FOUND;
    if (base != nullptr) *base = place->base;
    if (size != nullptr) *size = place->size;
    return CUDA_SUCCESS;
  });
}

CUresult cuPointerGetAttribute(void* out, CUpointer_attribute attribute, CUdeviceptr address) {
  return with_context(Function::cuPointerGetAttribute, [&](Simulator& simulator, const ContextPtr&) {
    const auto place = simulator.memory.find(address);
    if (out == nullptr || !place) return CUDA_ERROR_INVALID_VALUE;
    return put_attribute(out, attribute, *place, address);
  });
}

CUresult cuPointerGetAttributes(unsigned int count, CUpointer_attribute* attributes, void** out, CUdeviceptr address) {
  return with_context(Function::cuPointerGetAttributes, [&](Simulator& simulator, const ContextPtr&) {
    if (attributes == nullptr || out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const auto place = simulator.memory.find(address);
    for (unsigned i = 0; i < count; ++i) {
      const auto result = place ? put_attribute(out[i], attributes[i], *place, address) : CUDA_ERROR_INVALID_VALUE;
      if (result == CUDA_SUCCESS) continue;
      // Unlike the function for one attribute, this one succeeds for what it does not know, with zeros.
      std::memset(out[i], 0, size_of_attribute(attributes[i]));
      if (attributes[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL) put(out[i], -2);
    }
    return CUDA_SUCCESS;
  });
}

CUresult cuIpcGetMemHandle(CUipcMemHandle* out, CUdeviceptr address) {
  return with_context(Function::cuIpcGetMemHandle, [&](Simulator& simulator, const ContextPtr&) {
    const auto block = simulator.memory.block_at(address);
    if (out == nullptr || !block || block->managed) return CUDA_ERROR_INVALID_VALUE;
    // It names the block; opening it in another process is not simulated.
    std::memset(out, 0, sizeof *out);
    std::memcpy(out->reserved, &address, sizeof address);
    return CUDA_SUCCESS;
  });
}

}  // extern "C"

// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "backends/simulated/hip/runtime.hpp"

using namespace lowtide::sim::hip;

namespace {

// hipMemoryType since HIP 6.
constexpr int unregistered = 0;
constexpr int host = 1;
constexpr int device = 2;
constexpr int managed = 3;

CUresult get_attribute(const Driver& driver, void* out, hipPointer_attribute attribute, hipDeviceptr_t address) {
  // Up to this one the attributes have CUDA's numbers.
  if (out == nullptr || attribute > HIP_POINTER_ATTRIBUTE_MEMPOOL_HANDLE) return CUDA_ERROR_INVALID_VALUE;
  const auto result =
      driver.cuPointerGetAttribute(out, static_cast<CUpointer_attribute>(attribute), address_of(address));
  if (result == CUDA_SUCCESS && attribute == HIP_POINTER_ATTRIBUTE_MEMORY_TYPE) {
    auto& type = *static_cast<unsigned*>(out);
    type = static_cast<unsigned>(type == CU_MEMORYTYPE_HOST ? host : device);
  }
  return result;
}

template <class Value>
Value value_of(const Driver& driver, hipPointer_attribute attribute, const void* address, Value otherwise) {
  Value value{};
  const auto result = get_attribute(driver, &value, attribute, const_cast<void*>(address));
  return result == CUDA_SUCCESS ? value : otherwise;
}

hipPointerAttribute_t describe(const Driver& driver, const void* address) {
  hipPointerAttribute_t about{};
  about.device = value_of(driver, HIP_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address, -2);
  about.memoryType = value_of(driver, HIP_POINTER_ATTRIBUTE_MEMORY_TYPE, address, unregistered);
  about.isManaged = value_of(driver, HIP_POINTER_ATTRIBUTE_IS_MANAGED, address, 0);
  about.devicePointer = value_of<void*>(driver, HIP_POINTER_ATTRIBUTE_DEVICE_POINTER, address, nullptr);
  about.hostPointer = value_of<void*>(driver, HIP_POINTER_ATTRIBUTE_HOST_POINTER, address, nullptr);
  if (about.isManaged != 0) about.memoryType = managed;
  return about;
}

}  // namespace

extern "C" {

hipError_t hipMemGetAddressRange(hipDeviceptr_t* base, size_t* size, hipDeviceptr_t address) {
  return with_device([&](const Driver& driver) {
    CUdeviceptr start = 0;
    const auto result = driver.cuMemGetAddressRange_v2(&start, size, address_of(address));
    if (result == CUDA_SUCCESS && base != nullptr) *base = pointer_to(start);
    return result;
  });
}

hipError_t hipMemPtrGetInfo(void* address, size_t* size) { return hipMemGetAddressRange(nullptr, size, address); }

hipError_t hipPointerGetAttribute(void* out, hipPointer_attribute attribute, hipDeviceptr_t address) {
  return with_device([&](const Driver& driver) { return get_attribute(driver, out, attribute, address); });
}

hipError_t hipDrvPointerGetAttributes(unsigned int count, hipPointer_attribute* attributes, void** out,
                                      hipDeviceptr_t address) {
  return with_device([&](const Driver& driver) {
    if (attributes == nullptr || out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < count; ++i) {
      const auto result = get_attribute(driver, out[i], attributes[i], address);
      if (result != CUDA_SUCCESS) return result;
    }
    return CUDA_SUCCESS;
  });
}

hipError_t hipPointerGetAttributes(hipPointerAttribute_t* out, const void* address) {
  return with_device([&](const Driver& driver) {
    if (out == nullptr || address == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *out = describe(driver, address);
    return CUDA_SUCCESS;
  });
}

hipError_t hipIpcGetMemHandle(hipIpcMemHandle_t* out, void* memory) {
  static_assert(sizeof(CUipcMemHandle) == sizeof(hipIpcMemHandle_t));
  return with_device([&](const Driver& driver) {
    if (out != nullptr && Runtime::instance().virtual_memory().shows_to_others(address_of(memory))) {
      *out = {};
      return CUDA_SUCCESS;
    }
    return driver.cuIpcGetMemHandle(reinterpret_cast<CUipcMemHandle*>(out), address_of(memory));
  });
}

hipError_t hipIpcOpenMemHandle(void** out, hipIpcMemHandle_t handle, unsigned int flags) {
  return with_device([&](const Driver& driver) {
    if (driver.cuIpcOpenMemHandle_v2 == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
    CUipcMemHandle of_driver;
    std::memcpy(&of_driver, &handle, sizeof of_driver);
    CUdeviceptr address = 0;
    const auto result = driver.cuIpcOpenMemHandle_v2(&address, of_driver, flags);
    if (result == CUDA_SUCCESS) *out = pointer_to(address);
    return result;
  });
}

hipError_t hipIpcCloseMemHandle(void* memory) { return forward(&Driver::cuIpcCloseMemHandle, address_of(memory)); }

}  // extern "C"

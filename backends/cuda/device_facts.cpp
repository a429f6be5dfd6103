// SPDX-License-Identifier: Apache-2.0
#include "backends/cuda/device_facts.hpp"

#include <array>

namespace lowtide::cuda {
namespace {

Result<Bytes> granularity(const Driver& driver, DeviceId device) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = index_of(device);
  std::size_t bytes = 0;
  const auto result = driver.cuMemGetAllocationGranularity(&bytes, &properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
  if (result != CUDA_SUCCESS) return fail(driver.error(result, "cuMemGetAllocationGranularity"));
  return Bytes{bytes};
}

std::string device_name(const Driver& driver, DeviceId device) {
  std::array<char, 128> name{};
  if (driver.cuDeviceGetName(name.data(), static_cast<int>(name.size()), index_of(device)) != CUDA_SUCCESS) {
    return "unnamed device";
  }
  return name.data();
}

int host_node(const Driver& driver, DeviceId device) {
  constexpr auto host_numa_id =
      static_cast<CUdevice_attribute>(134);  // CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID of newer headers
  int node = -1;
  const auto result = driver.cuDeviceGetAttribute(&node, host_numa_id, index_of(device));
  return result == CUDA_SUCCESS ? node : -1;
}

}  // namespace

DeviceFacts facts_of(const Driver& driver, DeviceId device) {
  return {device_name(driver, device), host_node(driver, device), granularity(driver, device)};
}

}  // namespace lowtide::cuda

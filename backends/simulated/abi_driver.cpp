// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "backends/simulated/simulator.hpp"

using namespace lowtide::sim;

extern "C" {

CUresult cuInit(unsigned int flags) {
  return answer(Function::cuInit,
                [&](Simulator& simulator) { return flags == 0 ? simulator.initialise() : CUDA_ERROR_INVALID_VALUE; });
}

CUresult cuDriverGetVersion(int* version) {
  return answer(Function::cuDriverGetVersion, [&](Simulator&) {
    if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *version = driver_version;
    return CUDA_SUCCESS;
  });
}

CUresult cuGetExportTable(const void** table, const CUuuid*) {
  return answer(Function::cuGetExportTable, [&](Simulator&) {
    // The tables are private to the vendor's own libraries.
    if (table != nullptr) *table = nullptr;
    return CUDA_ERROR_NOT_FOUND;
  });
}

CUresult cuDeviceGetCount(int* count) {
  return with_driver(Function::cuDeviceGetCount, [&](Simulator& simulator) {
    if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *count = simulator.settings.devices;
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  return with_driver(Function::cuDeviceGet, [&](Simulator& simulator) {
    if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (!simulator.has_device(ordinal)) return CUDA_ERROR_INVALID_DEVICE;
    *device = ordinal;
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceGetName(char* name, int length, CUdevice device) {
  return with_driver(Function::cuDeviceGetName, [&](Simulator& simulator) {
    if (name == nullptr || length <= 0) return CUDA_ERROR_INVALID_VALUE;
    if (!simulator.has_device(device)) return CUDA_ERROR_INVALID_DEVICE;
    name[simulator.settings.device_name.copy(name, static_cast<std::size_t>(length) - 1)] = '\0';
    return CUDA_SUCCESS;
  });
}

// Devices are the same for the processes of one LOWTIDE_SIM_DIR; without one, each process has its own.
static std::uint64_t machine_of(const Settings& settings) {
  std::uint64_t hash = 0xcbf29ce484222325;
  const auto name = settings.directory.empty() ? std::to_string(::getpid()) : settings.directory;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

static CUresult device_uuid(Function function, CUuuid* uuid, CUdevice device) {
  return with_driver(function, [&](Simulator& simulator) {
    if (uuid == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (!simulator.has_device(device)) return CUDA_ERROR_INVALID_DEVICE;
    const auto machine = machine_of(simulator.settings);
    std::memcpy(uuid->bytes, "lowtide", sizeof uuid->bytes / 2);
    std::memcpy(uuid->bytes + sizeof uuid->bytes / 2, &machine, sizeof machine);
    uuid->bytes[sizeof uuid->bytes - 1] = static_cast<char>(device);
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice device) { return device_uuid(Function::cuDeviceGetUuid, uuid, device); }
CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice device) {
  return device_uuid(Function::cuDeviceGetUuid_v2, uuid, device);
}

CUresult cuDeviceGetPCIBusId(char* text, int length, CUdevice device) {
  return with_driver(Function::cuDeviceGetPCIBusId, [&](Simulator& simulator) {
    if (text == nullptr || length < 13) return CUDA_ERROR_INVALID_VALUE;
    if (!simulator.has_device(device)) return CUDA_ERROR_INVALID_DEVICE;
    const auto domain = static_cast<unsigned>(machine_of(simulator.settings) & 0xffff);
    std::snprintf(text, static_cast<std::size_t>(length), "%04x:%02x:00.0", domain, static_cast<unsigned>(device) + 1);
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice device) {
  return with_driver(Function::cuDeviceTotalMem_v2, [&](Simulator& simulator) {
    if (bytes == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (!simulator.has_device(device)) return CUDA_ERROR_INVALID_DEVICE;
    *bytes = simulator.capacity.total();
    return CUDA_SUCCESS;
  });
}

static int attribute_of(CUdevice_attribute attribute, CUdevice device) {
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: return 9;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: return 132;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK: return 1024;
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE: return 32;
    case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID: return device + 1;
    case CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT: return 3;
    case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
    case CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY:
    case CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY:
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS:
    case CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH:
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED: return 1;
    default: return 0;
  }
}

CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
  return with_driver(Function::cuDeviceGetAttribute, [&](Simulator& simulator) {
    const bool exists = attribute > 0 && attribute < CU_DEVICE_ATTRIBUTE_MAX;
    if (value == nullptr || !exists) return CUDA_ERROR_INVALID_VALUE;
    if (!simulator.has_device(device)) return CUDA_ERROR_INVALID_DEVICE;
    *value = attribute_of(attribute, device);
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceCanAccessPeer(int* can, CUdevice device, CUdevice peer) {
  return with_driver(Function::cuDeviceCanAccessPeer, [&](Simulator& simulator) {
    if (can == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (!simulator.has_device(device) || !simulator.has_device(peer)) return CUDA_ERROR_INVALID_DEVICE;
    *can = device != peer ? 1 : 0;
    return CUDA_SUCCESS;
  });
}

}  // extern "C"

// SPDX-License-Identifier: Apache-2.0
#include "backends/simulated/hip/runtime.hpp"

using namespace lowtide::sim::hip;

namespace {

/// Where HIP's attribute has another number than CUDA's.
constexpr std::pair<int, CUdevice_attribute> attributes[] = {
    {hipDeviceAttributeComputeCapabilityMajor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR},
    {hipDeviceAttributeComputeCapabilityMinor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR},
    {hipDeviceAttributeManagedMemory, CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY},
    {hipDeviceAttributeMaxThreadsPerBlock, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK},
    {hipDeviceAttributeMultiprocessorCount, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT},
    {hipDeviceAttributePciBusId, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID},
    {hipDeviceAttributePciDeviceId, CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID},
    {hipDeviceAttributePciDomainID, CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID},
    {hipDeviceAttributeWarpSize, CU_DEVICE_ATTRIBUTE_WARP_SIZE},
    {lowtide_hipDeviceAttributeVirtualMemoryManagementSupported,
     CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED},
};

CUresult get_attribute(Runtime& runtime, int* out, int attribute, int device) {
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (attribute == lowtide_hipDeviceAttributeVirtualMemoryManagementSupported &&
      !runtime.virtual_memory().supported()) {
    *out = 0;
    return CUDA_SUCCESS;
  }
  for (const auto& [hip, cuda] : attributes) {
    if (hip == attribute) return runtime.driver().cuDeviceGetAttribute(out, cuda, device);
  }
  return CUDA_ERROR_INVALID_VALUE;
}

/// A call that needs no context.
template <class... Parameters, class... Arguments>
hipError_t ask(CUresult (*Driver::*function)(Parameters...), Arguments... arguments) {
  return with_runtime([&](Runtime& runtime) { return (runtime.driver().*function)(arguments...); });
}

}  // namespace

extern "C" {

[[gnu::visibility("default")]] int lowtide_sim_is_simulated(void) { return 1; }

hipError_t hipInit(unsigned int flags) {
  return with_runtime([&](Runtime&) { return flags == 0 ? hipSuccess : hipErrorInvalidValue; });
}

hipError_t hipRuntimeGetVersion(int* out) {
  if (out == nullptr) return remember(hipErrorInvalidValue);
  *out = runtime_version;
  return hipSuccess;
}

hipError_t hipDriverGetVersion(int* out) { return hipRuntimeGetVersion(out); }

hipError_t hipGetDeviceCount(int* out) { return ask(&Driver::cuDeviceGetCount, out); }

hipError_t hipGetDevice(int* out) {
  return with_runtime([&](Runtime&) {
    if (out == nullptr) return hipErrorInvalidValue;
    *out = runtime_thread().device;
    return hipSuccess;
  });
}

hipError_t hipSetDevice(int device) {
  return with_runtime([&](Runtime& runtime) { return runtime.set_device(device); });
}

hipError_t hipDeviceGet(hipDevice_t* out, int ordinal) {
  return with_runtime([&](Runtime& runtime) {
    int count = 0;
    const auto result = runtime.driver().cuDeviceGetCount(&count);
    if (result != CUDA_SUCCESS) return result;
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (ordinal < 0 || ordinal >= count) return CUDA_ERROR_INVALID_DEVICE;
    *out = ordinal;
    return CUDA_SUCCESS;
  });
}

hipError_t hipDeviceGetName(char* out, int length, hipDevice_t device) {
  return ask(&Driver::cuDeviceGetName, out, length, device);
}

hipError_t hipDeviceGetUuid(hipUUID* out, hipDevice_t device) {
  static_assert(sizeof(CUuuid) == sizeof(hipUUID));
  return ask(&Driver::cuDeviceGetUuid_v2, reinterpret_cast<CUuuid*>(out), device);
}

hipError_t hipDeviceGetPCIBusId(char* out, int length, int device) {
  return ask(&Driver::cuDeviceGetPCIBusId, out, length, device);
}

hipError_t hipDeviceGetAttribute(int* out, hipDeviceAttribute_t attribute, int device) {
  return with_runtime(
      [&](Runtime& runtime) { return get_attribute(runtime, out, static_cast<int>(attribute), device); });
}

hipError_t hipDeviceTotalMem(size_t* out, hipDevice_t device) { return ask(&Driver::cuDeviceTotalMem_v2, out, device); }

hipError_t hipDeviceSynchronize(void) { return forward(&Driver::cuCtxSynchronize); }

hipError_t hipDeviceReset(void) {
  return with_runtime([&](Runtime& runtime) { return runtime.reset_device(); });
}

hipError_t hipDeviceCanAccessPeer(int* out, int device, int peer) {
  return ask(&Driver::cuDeviceCanAccessPeer, out, device, peer);
}

hipError_t hipDeviceEnablePeerAccess(int peer, unsigned int flags) {
  return with_device([&](const Driver& driver) {
    CUcontext context = nullptr;
    const auto error = Runtime::instance().context_of(peer, context);
    return error != hipSuccess ? error : as_hip(driver.cuCtxEnablePeerAccess(context, flags));
  });
}

hipError_t hipDeviceDisablePeerAccess(int peer) {
  return with_device([&](const Driver& driver) {
    CUcontext context = nullptr;
    const auto error = Runtime::instance().context_of(peer, context);
    return error != hipSuccess ? error : as_hip(driver.cuCtxDisablePeerAccess(context));
  });
}

}  // extern "C"

// SPDX-License-Identifier: Apache-2.0
#include "shim/cuda_platform.hpp"

#include <array>

#include "allocator/runtime.hpp"
#include "shim/cuda_ladder.hpp"
#include "shim/loader/vendor_library.hpp"

namespace lowtide {
namespace {

CUcontext context_of(ContextId context) noexcept { return reinterpret_cast<CUcontext>(context.value); }

}  // namespace

Status CudaPlatform::load(const RealLoader& loader) {
  void* library = open_vendor_library(loader, LOWTIDE_CUDA);
  if (library == nullptr) return fail(Code::unsupported, "libcuda.so.1 cannot be opened");
  auto driver = cuda::load_driver(loader.dlsym, library);
  if (!driver) return fail(driver.error());
  driver_ = *driver;
  // The second form, of CUDA 11.4, knows the instances of a MIG device from each other.
  for (const char* name : {"cuDeviceGetUuid_v2", "cuDeviceGetUuid"}) {
    if (uuid_of_ == nullptr) uuid_of_ = reinterpret_cast<decltype(uuid_of_)>(loader.dlsym(library, name));
  }
  simulated_ = loader.dlsym(library, "lowtide_sim_is_simulated") != nullptr;
  return {};
}

std::optional<Platform::Place> CudaPlatform::current() noexcept {
  CUcontext context = nullptr;
  CUdevice device = 0;
  if (driver_.cuCtxGetCurrent(&context) != CUDA_SUCCESS || context == nullptr ||
      driver_.cuCtxGetDevice(&device) != CUDA_SUCCESS) {
    return std::nullopt;
  }
  return Place{device, id_of(context)};
}

Result<ContextId> CudaPlatform::own_context(int device, Runtime* running) {
  unsigned flags = 0;
  int active = 0;
  const auto known = own_contexts_.find(device);
  // A reset of the device takes the reference away together with the context.
  const bool was_reset = known != own_contexts_.end() &&
                         driver_.cuDevicePrimaryCtxGetState(device, &flags, &active) == CUDA_SUCCESS && active == 0;
  if (known != own_contexts_.end() && !was_reset) return id_of(known->second);
  if (running != nullptr && was_reset) running->drop_primary_context(DeviceId{device});
  CUcontext primary = nullptr;
  auto result = driver_.cuInit(0);
  if (result == CUDA_SUCCESS) result = driver_.cuDevicePrimaryCtxRetain(&primary, device);
  if (result != CUDA_SUCCESS) return fail(driver_.error(result, "cuDevicePrimaryCtxRetain"));
  own_contexts_[device] = primary;
  if (running != nullptr) running->note_context(DeviceId{device}, id_of(primary), true);
  return id_of(primary);
}

Status CudaPlatform::in_context(ContextId context, const std::function<Status()>& work) {
  const cuda::ContextGuard guard(driver_, context_of(context));
  return work();
}

Result<DeviceAddress> CudaPlatform::allocate(ContextId context, Bytes size) {
  const cuda::ContextGuard guard(driver_, context_of(context));
  CUdeviceptr plain = 0;
  const auto result = driver_.cuMemAlloc_v2(&plain, size.value);
  if (result != CUDA_SUCCESS) return fail(driver_.error(result, "cuMemAlloc", to_text(size).c_str()));
  return DeviceAddress{plain};
}

Status CudaPlatform::free(ContextId context, DeviceAddress address) {
  const cuda::ContextGuard guard(driver_, context_of(context));
  return driver_.status(driver_.cuMemFree_v2(address.value), "cuMemFree");
}

Result<MemoryInfo> CudaPlatform::memory_info(ContextId context) {
  const cuda::ContextGuard guard(driver_, context_of(context));
  std::size_t free = 0;
  std::size_t total = 0;
  auto result = guard.result();
  if (result == CUDA_SUCCESS) result = driver_.cuMemGetInfo_v2(&free, &total);
  if (result != CUDA_SUCCESS) return fail(driver_.error(result, "cuMemGetInfo"));
  return MemoryInfo{{free}, {total}};
}

std::string CudaPlatform::device_name(DeviceId device) {
  std::array<char, 256> name{};
  const auto result = driver_.cuDeviceGetName(name.data(), static_cast<int>(name.size()) - 1, index_of(device));
  return result == CUDA_SUCCESS ? name.data() : "";
}

Ladder CudaPlatform::ladder(DeviceId device) { return cuda_ladder(driver_, device, memory_); }

std::string CudaPlatform::key_of(DeviceId device) {
  CUuuid uuid{};
  if (uuid_of_ == nullptr || uuid_of_(&uuid, index_of(device)) != CUDA_SUCCESS) return "";
  std::string key = "GPU-";
  for (std::size_t i = 0; i < sizeof uuid.bytes; ++i) {
    constexpr std::string_view digits = "0123456789abcdef";
    if (i == 4 || i == 6 || i == 8 || i == 10) key += '-';
    const auto byte = static_cast<unsigned char>(uuid.bytes[i]);
    key += digits[byte / 16];
    key += digits[byte % 16];
  }
  return key;
}

Result<int> CudaPlatform::device_count() {
  int count = 0;
  auto result = driver_.cuInit(0);
  if (result == CUDA_SUCCESS) result = driver_.cuDeviceGetCount(&count);
  if (result != CUDA_SUCCESS) return fail(driver_.error(result, "cuInit"));
  return count;
}

std::string CudaPlatform::version() {
  int version = 0;
  (void)driver_.cuDriverGetVersion(&version);
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

}  // namespace lowtide

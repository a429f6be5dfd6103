// SPDX-License-Identifier: Apache-2.0
#include "shim/hip_platform.hpp"

#include "backends/hip/vmm_backend.hpp"
#include "shim/loader/vendor_library.hpp"

namespace lowtide {
namespace {

DeviceId device_of(ContextId context) noexcept { return DeviceId{static_cast<int>(context.value) - 1}; }

}  // namespace

Status HipPlatform::load(const RealLoader& loader) {
  void* library = open_vendor_library(loader, LOWTIDE_HIP);
  if (library == nullptr) return fail(Code::unsupported, "libamdhip64.so cannot be opened");
  auto runtime = hip::load_runtime(loader.dlsym, library);
  if (!runtime) return fail(runtime.error());
  runtime_ = *runtime;
  simulated_ = loader.dlsym(library, "lowtide_sim_is_simulated") != nullptr;
  return {};
}

std::optional<Platform::Place> HipPlatform::current() noexcept {
  int device = 0;
  if (runtime_.hipGetDevice(&device) != hipSuccess) return std::nullopt;
  return Place{device, hip::context_of(DeviceId{device})};
}

Result<ContextId> HipPlatform::own_context(int device, Runtime* /*running*/) {
  int count = 0;
  const auto result = runtime_.hipGetDeviceCount(&count);
  if (result != hipSuccess) return fail(runtime_.error(result, "hipGetDeviceCount"));
  if (device < 0 || device >= count) {
    return fail(Error::format(Code::invalid, "there is no device %d: HIP has %d", device, count));
  }
  return hip::context_of(DeviceId{device});
}

Status HipPlatform::in_context(ContextId context, const std::function<Status()>& work) {
  const hip::DeviceGuard guard(runtime_, device_of(context));
  return work();
}

Result<DeviceAddress> HipPlatform::allocate(ContextId context, Bytes size) {
  const hip::DeviceGuard guard(runtime_, device_of(context));
  void* plain = nullptr;
  const auto result = runtime_.hipMalloc(&plain, size.value);
  if (result != hipSuccess) return fail(runtime_.error(result, "hipMalloc", to_text(size).c_str()));
  return DeviceAddress{reinterpret_cast<std::uintptr_t>(plain)};
}

Status HipPlatform::free(ContextId context, DeviceAddress address) {
  const hip::DeviceGuard guard(runtime_, device_of(context));
  return runtime_.status(runtime_.hipFree(reinterpret_cast<void*>(address.value)), "hipFree");
}

Result<std::unique_ptr<Backend>> HipPlatform::make(DeviceId device, ContextId /*context*/) {
  const hip::VmmHabits habits;
  const auto capabilities = hip::vmm_capabilities(runtime_, device, habits, true);
  if (!capabilities) return fail(capabilities.error());
  return std::make_unique<hip::VmmBackend>(runtime_, device, hip::name_of(runtime_, device), *capabilities,
                                           "virtual memory management, not tried out", habits);
}

}  // namespace lowtide

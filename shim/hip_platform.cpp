// SPDX-License-Identifier: Apache-2.0
#include "shim/hip_platform.hpp"

#include "shim/loader/vendor_library.hpp"

namespace lowtide {

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
  return Place{device, context_of_device(device)};
}

Result<ContextId> HipPlatform::own_context(int device, Runtime* /*running*/) {
  int count = 0;
  const auto result = runtime_.hipGetDeviceCount(&count);
  if (result != hipSuccess) return fail(runtime_.error(result, "hipGetDeviceCount"));
  if (device < 0 || device >= count) {
    return fail(Error::format(Code::invalid, "there is no device %d: HIP has %d", device, count));
  }
  return context_of_device(device);
}

Status HipPlatform::in_context(ContextId context, const std::function<Status()>& work) {
  const hip::DeviceGuard guard(runtime_, device_of_context(context));
  return work();
}

Result<DeviceAddress> HipPlatform::allocate(ContextId context, Bytes size) {
  const hip::DeviceGuard guard(runtime_, device_of_context(context));
  void* plain = nullptr;
  const auto result = runtime_.hipMalloc(&plain, size.value);
  if (result != hipSuccess) return fail(runtime_.error(result, "hipMalloc", to_text(size).c_str()));
  return DeviceAddress{reinterpret_cast<std::uintptr_t>(plain)};
}

Status HipPlatform::free(ContextId context, DeviceAddress address) {
  const hip::DeviceGuard guard(runtime_, device_of_context(context));
  return runtime_.status(runtime_.hipFree(reinterpret_cast<void*>(address.value)), "hipFree");
}

Result<std::unique_ptr<Backend>> HipPlatform::make(DeviceId device, ContextId /*context*/) {
  auto backend = hip::probe(runtime_, device);
  if (!backend) return fail(backend.error());
  return std::unique_ptr<Backend>(std::move(*backend));
}

}  // namespace lowtide

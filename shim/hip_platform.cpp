// SPDX-License-Identifier: Apache-2.0
#include "shim/hip_platform.hpp"

#include <array>

#include "shim/hip_ladder.hpp"
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

Result<MemoryInfo> HipPlatform::memory_info(ContextId context) {
  const hip::DeviceGuard guard(runtime_, device_of(context));
  std::size_t free = 0;
  std::size_t total = 0;
  auto result = guard.result();
  if (result == hipSuccess) result = runtime_.hipMemGetInfo(&free, &total);
  if (result != hipSuccess) return fail(runtime_.error(result, "hipMemGetInfo"));
  return MemoryInfo{{free}, {total}};
}

std::string HipPlatform::device_name(DeviceId device) {
  std::array<char, 256> name{};
  const auto result = runtime_.hipDeviceGetName(name.data(), static_cast<int>(name.size()) - 1, index_of(device));
  return result == hipSuccess ? name.data() : "";
}

Ladder HipPlatform::ladder(DeviceId device) { return hip_ladder(runtime_, device, reservations_, memory_); }

std::string HipPlatform::key_of(DeviceId device) {
  std::array<char, 64> address{};
  if (runtime_.hipDeviceGetPCIBusId(address.data(), static_cast<int>(address.size()), index_of(device)) != hipSuccess)
    return "";
  return std::string("pci-") + address.data();
}

Result<int> HipPlatform::device_count() {
  int count = 0;
  const auto result = runtime_.hipGetDeviceCount(&count);
  if (result != hipSuccess) return fail(runtime_.error(result, "hipGetDeviceCount"));
  return count;
}

std::string HipPlatform::version() {
  constexpr int major = 10'000'000;
  constexpr int minor = 100'000;
  int version = 0;
  (void)runtime_.hipRuntimeGetVersion(&version);
  return std::to_string(version / major) + "." + std::to_string(version % major / minor);
}

}  // namespace lowtide

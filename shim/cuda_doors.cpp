// SPDX-License-Identifier: Apache-2.0
// What only CUDA's doors ask: contexts and peers.
#include "shim/doors.hpp"

namespace lowtide {
namespace {

const cuda::Driver& the_driver() noexcept { return process().cuda().driver(); }

std::optional<DeviceId> device_of(CUcontext context) noexcept {
  const auto& driver = the_driver();
  const cuda::ContextGuard guard(driver, context);
  CUdevice device = 0;
  if (guard.result() != CUDA_SUCCESS || driver.cuCtxGetDevice(&device) != CUDA_SUCCESS) return std::nullopt;
  return DeviceId{device};
}

/// The handle of the device's primary context; null if it is not active.
CUcontext primary_context(int device) noexcept {
  const auto& driver = the_driver();
  unsigned flags = 0;
  int active = 0;
  CUcontext context = nullptr;
  if (driver.cuDevicePrimaryCtxGetState(device, &flags, &active) != CUDA_SUCCESS || active == 0) return nullptr;
  if (driver.cuDevicePrimaryCtxRetain(&context, device) != CUDA_SUCCESS) return nullptr;
  (void)driver.cuDevicePrimaryCtxRelease_v2(device);
  return context;
}

}  // namespace

namespace cuda_doors {

void context_created(void* context) noexcept {
  Runtime* runtime = process().start(LOWTIDE_CUDA);
  if (runtime == nullptr) return;
  guarded([&] {
    const auto device = device_of(static_cast<CUcontext>(context));
    if (device) runtime->note_context(*device, id_of(context), primary_context(index_of(*device)) == context);
  });
  process().serve();
}

void context_destroying(void* context) noexcept {
  Runtime* runtime = process().runtime(LOWTIDE_CUDA);
  if (runtime == nullptr) return;
  guarded([&] {
    const auto device = device_of(static_cast<CUcontext>(context));
    // A primary context lives until its last release: the driver refuses to destroy it.
    if (device && primary_context(index_of(*device)) == context) return;
    runtime->drop_context(id_of(context), true);
  });
}

void primary_context_resetting(int device) noexcept {
  Runtime* runtime = process().runtime(LOWTIDE_CUDA);
  if (runtime == nullptr) return;
  if (CUcontext context = primary_context(device)) guarded([&] { runtime->drop_context(id_of(context), true); });
}

void primary_context_released(int device) noexcept {
  Runtime* runtime = process().runtime(LOWTIDE_CUDA);
  if (runtime == nullptr || primary_context(device) != nullptr) return;
  guarded([&] { runtime->drop_primary_context(DeviceId{device}); });
}

void peer_access(void* peer_context, int enabled) noexcept {
  Runtime* runtime = process().runtime(LOWTIDE_CUDA);
  if (runtime == nullptr) return;
  guarded([&] {
    CUdevice accessor = 0;
    const auto owner = device_of(static_cast<CUcontext>(peer_context));
    if (!owner || the_driver().cuCtxGetDevice(&accessor) != CUDA_SUCCESS) return;
    if (auto status = runtime->set_peer(*owner, DeviceId{accessor}, enabled != 0); !status) {
      log(LogLevel::warning, "device %d was not given access to device %d: %s", accessor, index_of(*owner),
          status.error().message());
    }
  });
}

}  // namespace cuda_doors
}  // namespace lowtide

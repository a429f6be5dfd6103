// SPDX-License-Identifier: Apache-2.0
// What only HIP's doors ask: devices and peers.
#include "shim/doors.hpp"
#include "shim/hip_platform.hpp"

namespace lowtide::hip_doors {

// CUDA tells of a context when it is made. Of a device of HIP nothing is told before its first use.
void note_device(Runtime& runtime) noexcept {
  const auto here = process().platform().current();
  if (!here || !process().hip().is_first_use(here->device)) return;
  guarded([&] { runtime.note_context(DeviceId{here->device}, here->context, true); });
  process().serve();
}

// The runtime forgets what it gave out. Memory of virtual memory management may survive that, so it is given back
// before.
void primary_context_resetting(int device) noexcept {
  if (Runtime* runtime = process().runtime(LOWTIDE_HIP)) {
    guarded([&] { runtime->drop_context(hip::context_of(DeviceId{device}), true); });
    process().hip().was_reset(device);
  }
}

void peer_access(void* peer_device, int enabled) noexcept {
  Runtime* runtime = process().runtime(LOWTIDE_HIP);
  if (runtime == nullptr) return;
  guarded([&] {
    const auto here = process().platform().current();
    if (!here) return;
    const int owner = static_cast<int>(reinterpret_cast<std::uintptr_t>(peer_device));
    if (auto status = runtime->set_peer(DeviceId{owner}, DeviceId{here->device}, enabled != 0); !status) {
      log(LogLevel::warning, "device %d was not given access to device %d: %s", here->device, owner,
          status.error().message());
    }
  });
}

}  // namespace lowtide::hip_doors

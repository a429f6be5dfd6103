// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "backends/cuda/vmm_backend.hpp"

namespace lowtide::cuda {

/// Finds out by trying what the device can do, and makes its backend: reserves, creates, maps, writes, reads back,
/// unmaps, and looks whether free memory comes back. Attributes and versions are not asked: there are drivers that have
/// every call and free nothing. Uses one granule of device memory for a moment, and tolerates neighbours that allocate
/// meanwhile. Code::unsupported, with the call that failed, if the device cannot pause.
Result<std::unique_ptr<VmmBackend>> probe(const Driver& driver, DeviceId device, ContextId context);

}  // namespace lowtide::cuda

// SPDX-License-Identifier: Apache-2.0
#include "allocator/core/extent.hpp"

namespace lowtide {

Status Extent::climb(Backend& backend, std::span<const DeviceId> peers) {
  if (rung() == Rung::bare) {
    auto physical = backend.create(range_.size);
    if (!physical) return fail(physical.error());
    physical_ = *physical;
    rung_ = Rung::created;
  }
  if (rung() == Rung::created) {
    if (auto status = backend.map(range_, physical_); !status) return status;
    rung_ = Rung::mapped;
  }
  return set_access(backend, peers);
}

Status Extent::set_access(Backend& backend, std::span<const DeviceId> peers) {
  if (auto status = backend.set_access(range_, peers); !status) return status;
  rung_ = Rung::accessible;
  return {};
}

Status Extent::descend(Backend& backend) {
  if (mapped()) {
    if (auto status = backend.unmap(range_); !status) return status;
    rung_ = Rung::created;
  }
  if (rung() == Rung::created) {
    if (auto status = backend.release(physical_); !status) return status;
    physical_ = {};
    rung_ = Rung::bare;
  }
  return {};
}

}  // namespace lowtide

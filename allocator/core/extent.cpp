// SPDX-License-Identifier: Apache-2.0
#include "allocator/core/extent.hpp"

#include <algorithm>

namespace lowtide {

Status Extent::climb(Backend& backend, std::span<const DeviceId> peers) {
  if (auto status = climb_to_mapped(backend); !status) return status;
  return set_access(backend, peers);
}

Status Extent::climb_to_created(Backend& backend) {
  if (rung() != Rung::bare) return {};
  auto physical = backend.create(place());
  if (!physical) return fail(physical.error());
  physical_ = *physical;
  rung_ = Rung::created;
  return {};
}

Status Extent::climb_to_mapped(Backend& backend) {
  if (auto status = climb_to_created(backend); !status) return status;
  if (rung() == Rung::created) {
    if (auto status = backend.map(place(), physical_); !status) return status;
    rung_ = Rung::mapped;
  }
  return {};
}

Status Extent::set_access(Backend& backend, std::span<const DeviceId> peers) {
  if (auto status = backend.set_access(place(), peers); !status) return status;
  rung_ = Rung::accessible;
  return {};
}

namespace {

AddressRange span_of(std::span<Extent* const> neighbours) {
  const DeviceAddress start = neighbours.front()->range().start;
  return {start, neighbours.back()->range().end() - start};
}

}  // namespace

Status Extent::set_access(std::span<Extent* const> neighbours, Backend& backend, std::span<const DeviceId> peers) {
  if (neighbours.size() > 1 && backend.set_access(span_of(neighbours), peers)) {
    for (Extent* extent : neighbours) extent->rung_ = Rung::accessible;
    return {};
  }
  for (Extent* extent : neighbours) {
    if (auto status = extent->set_access(backend, peers); !status) return status;
  }
  return {};
}

void Extent::unmap(std::span<Extent* const> neighbours, Backend& backend) {
  const bool all_mapped = std::all_of(neighbours.begin(), neighbours.end(), [](Extent* e) { return e->mapped(); });
  if (neighbours.size() < 2 || !all_mapped || !backend.unmap(span_of(neighbours))) return;
  for (Extent* extent : neighbours) extent->rung_ = Rung::created;
}

Status Extent::descend_to_created(Backend& backend) {
  if (!mapped()) return {};
  if (auto status = backend.unmap(place()); !status) return status;
  rung_ = Rung::created;
  return {};
}

Status Extent::descend(Backend& backend) {
  if (auto status = descend_to_created(backend); !status) return status;
  if (rung() == Rung::created) {
    if (auto status = backend.release(physical_); !status) return status;
    physical_ = {};
    rung_ = Rung::bare;
  }
  return {};
}

Status Extent::park(Backend& backend) {
  if (auto status = descend(backend); !status) return status;
  return backend.capabilities().reserves_each ? backend.keep_address(range_) : Status();
}

}  // namespace lowtide

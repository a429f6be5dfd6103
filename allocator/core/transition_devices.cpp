// SPDX-License-Identifier: Apache-2.0
#include "allocator/core/transition_devices.hpp"

#include <algorithm>

#include "allocator/core/region.hpp"

namespace lowtide {
namespace {

Bytes free_memory(Backend& backend) noexcept {
  const auto info = backend.memory_info();
  return info ? info->free : Bytes{};
}

}  // namespace

TransitionDevices::TransitionDevices(std::span<Extent* const> extents) {
  for (const Extent* extent : extents) {
    Backend* backend = &extent->region.backend;
    if (std::find(backends_.begin(), backends_.end(), backend) != backends_.end()) continue;
    backends_.push_back(backend);
    reports_.push_back({backend->device(), {}, {}});
  }
}

void TransitionDevices::note_before() noexcept {
  for (std::size_t i = 0; i < backends_.size(); ++i) reports_[i].free_before = free_memory(*backends_[i]);
}

std::vector<DeviceReport> TransitionDevices::reports() noexcept {
  for (std::size_t i = 0; i < backends_.size(); ++i) reports_[i].free_after = free_memory(*backends_[i]);
  return std::move(reports_);
}

Status TransitionDevices::synchronise() {
  for (Backend* backend : backends_) {
    if (auto status = backend->synchronise(); !status) return status;
  }
  return {};
}

Status TransitionDevices::finish_copies() {
  Status result;
  for (Backend* backend : backends_) {
    if (auto status = backend->finish_copies(); !status && result) result = status;
  }
  return result;
}

Status TransitionDevices::has_room(std::span<Extent* const> extents) {
  for (Backend* backend : backends_) {
    Bytes needed;
    for (const Extent* extent : extents) {
      if (&extent->region.backend == backend && !extent->holds_memory()) needed += extent->range().size;
    }
    const auto info = backend->memory_info();
    if (!info) return fail(info.error());
    if (needed <= info->free) continue;
    return fail(Error::format(
        Code::device_memory,
        "device %d: the resume needs %s and %s of %s are free; what is missing is held by other blocks or processes. "
        "Nothing changed: free memory there (lowtide pause PID) and repeat, or let it wait (device.wait)",
        index_of(backend->device()), to_text(needed).c_str(), to_text(info->free).c_str(),
        to_text(info->total).c_str()));
  }
  return {};
}

}  // namespace lowtide

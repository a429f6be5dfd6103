// SPDX-License-Identifier: Apache-2.0
#include "allocator/core/host_move.hpp"

#include "allocator/base/log.hpp"
#include "allocator/core/transition_admission.hpp"

namespace lowtide {

HostMove::~HostMove() {
  if (copying_ && !devices_.finish_copies()) return;  // the next pause, which waits for the devices, goes on from here
  for (Extent* extent : extents_) {
    if (!extent->resident || !extent->host) continue;
    if (extent->host->filled()) extent->backup.reset();
    drop_host_backing(*extent);
  }
}

Status HostMove::copy(const BlockTable& table) {
  if (extents_.empty()) return {};
  copying_ = true;
  if (auto status = fill(table); !status) return status;
  if (auto status = devices_.finish_copies(); !status) return status;
  copying_ = false;
  for (Extent* extent : extents_) {
    auto backup = std::make_unique<HostBackedBackup>(*extent, store_);
    if (auto status = extent->host->finish_fill(); !status) return status;
    extent->backup = std::move(backup);
  }
  return {};
}

Status HostMove::fill(const BlockTable& table) {
  Bytes needed;
  for (const Extent* extent : extents_) {
    if (!extent->host || !extent->host->has_memory()) needed += extent->range().size;
  }
  auto promise = store_.promise_host(needed);
  if (!promise) return fail(promise.error());
  for (Extent* extent : extents_) {
    if (!extent->host) extent->host = std::make_unique<HostBacking>(*extent, store_);
    if (auto status = extent->host->set_peers(table.peers_of(extent->region.backend.device())); !status) return status;
    if (auto status = extent->host->fill(**promise); !status) return status;
  }
  return {};
}

void settle_parked(Extent& extent) noexcept {
  if (!extent.host) return;
  if (!extent.host->filled()) {
    drop_host_backing(extent);
    return;
  }
  if (auto status = extent.host->put_in_place(); !status) {
    log(LogLevel::warning, "a parked block of tag %s cannot be read by the device until it is resumed: %s",
        extent.region.label.tag.c_str(), status.error().message());
  }
}

Status stage_moved(std::span<Extent* const> moved, AdmittedTransition& admitted) {
  for (Extent* extent : moved) {
    const bool held = extent->holds_memory();
    auto status = extent->host->stage();
    if (!held && extent->holds_memory()) admitted.taken(*extent);
    if (!status) return status;
  }
  return {};
}

Status exchange_moved(std::span<Extent* const> moved, const BlockTable& table) {
  for (Extent* extent : moved) {
    const auto peers = table.peers_of(extent->region.backend.device());
    if (auto status = extent->host->exchange(peers); !status) return status;
  }
  return {};
}

}  // namespace lowtide

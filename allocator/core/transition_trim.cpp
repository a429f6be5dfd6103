// SPDX-License-Identifier: Apache-2.0
// Giving back what the next pause would have used again.
#include "allocator/core/transition.hpp"

namespace lowtide {
namespace {

bool keeps_host_memory(const Extent& extent) {
  return extent.retained != nullptr || (extent.resident && extent.host != nullptr);
}

}  // namespace

bool Transitions::drop_retained() { return drop_retained(table_.claim(std::nullopt, keeps_host_memory).extents); }

bool Transitions::drop_retained(std::span<Extent* const> extents) {
  const Bytes before = store_.retained_bytes();
  for (Extent* extent : extents) {
    extent->retained.reset();
    if (extent->resident) drop_host_backing(*extent);
  }
  store_.trim();
  return store_.retained_bytes() < before;
}

Result<TrimReport> Transitions::trim() {
  const std::lock_guard lock(mutex_);
  const auto no_captures = captures_.block();
  if (!no_captures) return fail(no_captures.error());
  const Bytes before = store_.retained_bytes() + store_.backup_bytes();
  auto parked = table_.claim(std::nullopt, [](const Extent& extent) { return !extent.resident; });
  table_.leave_out_freed(parked);
  drop_retained();
  const Bytes after = store_.retained_bytes() + store_.backup_bytes();
  return TrimReport{before > after ? before - after : Bytes{}, after};
}

}  // namespace lowtide

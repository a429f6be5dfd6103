// SPDX-License-Identifier: Apache-2.0
// Giving back what the next pause would have used again.
#include "allocator/core/transition.hpp"

namespace lowtide {
namespace {

bool keeps_host_memory(const Extent& extent) {
  return extent.retained != nullptr || (extent.resident && extent.host != nullptr);
}

}  // namespace

void Transitions::drop_retained() {
  const auto claim = table_.claim(std::nullopt, keeps_host_memory);
  for (Extent* extent : claim.extents) {
    extent->retained.reset();
    if (extent->resident) drop_host_backing(*extent);
  }
}

Result<TrimReport> Transitions::trim() {
  const std::lock_guard lock(mutex_);
  const auto no_captures = captures_.block();
  if (!no_captures) return fail(no_captures.error());
  const Bytes before = store_.retained_bytes();
  drop_retained();
  store_.trim();
  const Bytes after = store_.retained_bytes();
  return TrimReport{before > after ? before - after : Bytes{}, after + store_.backup_bytes()};
}

}  // namespace lowtide

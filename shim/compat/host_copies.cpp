// SPDX-License-Identifier: Apache-2.0
#include "shim/compat/host_copies.hpp"

namespace lowtide::compat {

const std::byte* HostCopies::at(Runtime& runtime, AddressRange range, Runtime::Copies copies) {
  // Asked first: a caller's size may be any number, and as many bytes would be made.
  const auto block = runtime.blocks().find(range.start);
  if (!block || range.size > block->range.size - (range.start - block->range.start)) return nullptr;
  if (!block->resident) {
    const auto bytes = runtime.view_backup(range.start, copies);
    if (!bytes) return nullptr;
    if (bytes->size() >= range.size.value) return bytes->data();
  }  // else what a resume kept: a trim may drop it at any time
  const std::lock_guard lock(mutex_);
  auto& pieces = copies_[range.start];
  if (pieces.empty() || pieces.front().size() < range.size.value) pieces.emplace_front(range.size.value);
  // Read again each time: what lies there since may be another pause's, or another block's.
  const bool read = runtime.read_backup(range, pieces.front().data(), copies).has_value();
  return read ? pieces.front().data() : nullptr;
}

void HostCopies::drop_gone(Runtime& runtime, Runtime::Copies copies) {
  const std::lock_guard lock(mutex_);
  std::erase_if(copies_, [&](const auto& each) { return !runtime.view_backup(each.first, copies); });
}

}  // namespace lowtide::compat

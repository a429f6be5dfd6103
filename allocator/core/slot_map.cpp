// SPDX-License-Identifier: Apache-2.0
#include "allocator/core/slot_map.hpp"

#include <algorithm>
#include <iterator>

namespace lowtide {

SlotMap::SlotMap(AddressRange range) : range_(range), free_(range.size) {
  next_ = slots_.emplace(range.start, Slot{range.size, false}).first;
}

std::optional<AddressRange> SlotMap::take(Bytes size) {
  if (size > free_) return std::nullopt;
  auto slot = next_;
  do {
    if (!slot->second.used && slot->second.size >= size) return cut(slot, size);
    if (++slot == slots_.end()) slot = slots_.begin();
  } while (slot != next_);
  return std::nullopt;
}

void SlotMap::take_at(AddressRange range) {
  auto slot = std::prev(slots_.upper_bound(range.start));
  const Bytes before = range.start - slot->first;
  if (before.value > 0) {
    const Slot rest{slot->second.size - before, false};
    slot = slots_.emplace_hint(std::next(slot), range.start, rest);
    std::prev(slot)->second.size = before;
  }
  cut(slot, range.size);
}

void SlotMap::join_used(AddressRange range) noexcept {
  const auto first = slots_.find(range.start);
  const auto end = slots_.lower_bound(range.end());
  if (next_ != slots_.end() && range.contains(next_->first)) next_ = first;
  slots_.erase(std::next(first), end);
  first->second.size = range.size;
}

void SlotMap::split_used(DeviceAddress start, DeviceAddress at) {
  const auto slot = slots_.find(start);
  const Bytes before = at - start;
  slots_.emplace_hint(std::next(slot), at, Slot{slot->second.size - before, true});
  slot->second.size = before;
}

AddressRange SlotMap::cut(Slots::iterator slot, Bytes size) {
  const Bytes rest = slot->second.size - size;
  auto following = std::next(slot);
  if (rest.value > 0) following = slots_.emplace_hint(following, slot->first + size, Slot{rest, false});
  slot->second = {size, true};
  free_ -= size;
  next_ = following == slots_.end() ? slots_.begin() : following;
  return {slot->first, size};
}

void SlotMap::give_back(DeviceAddress start) noexcept {
  auto slot = slots_.find(start);
  slot->second.used = false;
  free_ += slot->second.size;
  const auto join = [this](Slots::iterator left, Slots::iterator right) {
    left->second.size += right->second.size;
    if (next_ == right) next_ = left;
    slots_.erase(right);
  };
  const auto following = std::next(slot);
  if (following != slots_.end() && !following->second.used) join(slot, following);
  if (slot != slots_.begin()) {
    const auto before = std::prev(slot);
    if (!before->second.used) join(before, slot);
  }
}

void SlotMap::rebase(DeviceAddress start) noexcept {
  Slots moved;
  while (!slots_.empty()) {
    auto node = slots_.extract(slots_.begin());
    node.key() = start + (node.key() - range_.start);
    moved.insert(moved.end(), std::move(node));
  }
  slots_ = std::move(moved);
  next_ = slots_.begin();
  range_.start = start;
}

}  // namespace lowtide

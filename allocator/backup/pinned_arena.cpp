// SPDX-License-Identifier: Apache-2.0
#include "allocator/backup/pinned_arena.hpp"

#include <iterator>

namespace lowtide {

std::optional<PinnedArena::Place> PinnedArena::take(Bytes size) {
  const std::lock_guard lock(mutex_);
  if (size > free_) return std::nullopt;
  for (auto slab = slabs_.begin(); slab != slabs_.end(); ++slab) {
    const auto range = (*slab)->slots.take(size);
    if (!range) continue;
    free_ -= size;
    // A run of pages is taken in order: the slab that had room comes first, full ones go to the end.
    Slab& used = **slab;
    const auto place = used.slots.free_bytes().value > 0 ? slabs_.begin() : slabs_.end();
    slabs_.splice(place, slabs_, slab);
    return Place{&used, reinterpret_cast<unsigned char*>(range->start.value)};
  }
  return std::nullopt;
}

void PinnedArena::give_back(const Place& place) noexcept {
  const std::lock_guard lock(mutex_);
  const Bytes before = place.slab->slots.free_bytes();
  place.slab->slots.give_back({reinterpret_cast<std::uintptr_t>(place.memory)});
  free_ += place.slab->slots.free_bytes() - before;
}

void PinnedArena::add(std::unique_ptr<Slab> slab) {
  Slabs made;
  made.push_back(std::move(slab));
  const std::lock_guard lock(mutex_);
  size_ += made.front()->size();
  free_ += made.front()->slots.free_bytes();
  slabs_.splice(slabs_.begin(), made);
}

void PinnedArena::release_empty() noexcept {
  Slabs empty;
  {
    const std::lock_guard lock(mutex_);
    for (auto slab = slabs_.begin(); slab != slabs_.end();) {
      const auto next = std::next(slab);
      if ((*slab)->empty()) {
        size_ -= (*slab)->size();
        free_ -= (*slab)->size();
        empty.splice(empty.end(), slabs_, slab);
      }
      slab = next;
    }
  }
  for (auto slab = empty.begin(); slab != empty.end();) {
    slab = (*slab)->unregister() ? empty.erase(slab) : std::next(slab);
  }
  const std::lock_guard lock(mutex_);
  for (const auto& slab : empty) {
    size_ += slab->size();
    free_ += slab->size();
  }
  slabs_.splice(slabs_.end(), empty);
}

Bytes PinnedArena::size() const noexcept {
  const std::lock_guard lock(mutex_);
  return size_;
}

std::vector<Bytes> PinnedArena::free_by_slab() const {
  const std::lock_guard lock(mutex_);
  std::vector<Bytes> free;
  free.reserve(slabs_.size());
  for (const auto& slab : slabs_) free.push_back(slab->slots.free_bytes());
  return free;
}

}  // namespace lowtide

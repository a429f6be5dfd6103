// SPDX-License-Identifier: Apache-2.0
#include "shim/observation/unmanaged.hpp"

namespace lowtide {

using trace::Memory;

Unmanaged::Space Unmanaged::space_of(Memory kind) noexcept {
  if (kind == Memory::handle) return Space::handle;
  return kind == Memory::array ? Space::array : Space::memory;
}

void Unmanaged::count(const Piece& piece, bool more) {
  auto& sum = sums_[piece.device][static_cast<std::size_t>(piece.kind)];
  if (more)
    sum += piece.bytes;
  else
    sum -= piece.bytes;
}

Unmanaged::Piece Unmanaged::take(Entries::iterator entry) {
  const Piece piece = entry->second.piece;
  count(piece, false);
  entries_.erase(entry);
  return piece;
}

std::optional<Unmanaged::Piece> Unmanaged::take_if_unused(Entries::iterator entry) {
  if (entry->second.references > 0 || entry->second.mappings > 0) return std::nullopt;
  return take(entry);
}

void Unmanaged::add(std::uint64_t address, const Piece& piece) {
  const std::lock_guard lock(mutex_);
  sums_.try_emplace(piece.device);
  const auto [entry, is_new] = entries_.try_emplace({space_of(piece.kind), address}, Entry{piece});
  if (!is_new) {  // its end went past the doors
    count(entry->second.piece, false);
    entry->second = {piece};
  }
  count(piece, true);
}

std::optional<Unmanaged::Piece> Unmanaged::remove(Memory kind, std::uint64_t address) {
  const std::lock_guard lock(mutex_);
  const auto entry = entries_.find({space_of(kind), address});
  return entry == entries_.end() ? std::nullopt : std::optional(take(entry));
}

std::vector<Unmanaged::Placed> Unmanaged::remove_all_of(ContextId context) {
  std::vector<Placed> removed;
  const std::lock_guard lock(mutex_);
  for (auto entry = entries_.begin(); entry != entries_.end();) {
    const auto next = std::next(entry);
    if (entry->second.piece.context == context) {
      removed.push_back({entry->first.address, entry->second.piece});
      take(entry);
    }
    entry = next;
  }
  return removed;
}

void Unmanaged::retain(std::uint64_t handle) {
  const std::lock_guard lock(mutex_);
  if (const auto entry = entries_.find({Space::handle, handle}); entry != entries_.end()) ++entry->second.references;
}

std::optional<Unmanaged::Piece> Unmanaged::release(std::uint64_t handle) {
  const std::lock_guard lock(mutex_);
  const auto entry = entries_.find({Space::handle, handle});
  if (entry == entries_.end()) return std::nullopt;
  if (entry->second.references > 0) --entry->second.references;
  return take_if_unused(entry);
}

void Unmanaged::map(AddressRange range, std::uint64_t handle) {
  const std::lock_guard lock(mutex_);
  const auto entry = entries_.find({Space::handle, handle});
  if (entry == entries_.end()) return;
  if (mappings_.try_emplace(range.start.value, Mapping{range.size, handle}).second) ++entry->second.mappings;
}

std::vector<Unmanaged::Placed> Unmanaged::unmap(AddressRange range) {
  std::vector<Placed> gone;
  const std::lock_guard lock(mutex_);
  const auto end = mappings_.lower_bound(range.end().value);
  for (auto mapping = mappings_.lower_bound(range.start.value); mapping != end; mapping = mappings_.erase(mapping)) {
    const auto handle = mapping->second.handle;
    const auto entry = entries_.find({Space::handle, handle});
    if (entry == entries_.end()) continue;
    --entry->second.mappings;
    if (const auto piece = take_if_unused(entry)) gone.push_back({handle, *piece});
  }
  return gone;
}

std::map<DeviceId, Unmanaged::Sums> Unmanaged::sums() const {
  const std::lock_guard lock(mutex_);
  return sums_;
}

}  // namespace lowtide

// SPDX-License-Identifier: Apache-2.0
#include <mutex>

#include "backends/simulated/memory.hpp"

namespace lowtide::sim {
namespace {

template <class Entry>
bool within(const Entry& entry, Address address, std::uint64_t size) {
  const auto offset = address - entry.first;
  const auto whole = size_of(entry.second);
  return size <= whole && offset <= whole - size;
}

}  // namespace

/// The touched range is all mapped, by one mapping after the other, with access for who touches it.
bool Memory::mapped(const Actor& actor, const Touch& touch) const {
  const auto wanted = touch.write ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_READ;
  const auto allows = [&](const Mapping& mapping, int place) {
    return (mapping.access[static_cast<std::size_t>(place)] & wanted) == wanted;
  };
  auto at = touch.address;
  for (auto mapping = containing(mappings_, at); mapping != mappings_.end() && mapping->first <= at; ++mapping) {
    const bool own = allows(mapping->second, actor.device);
    // The copy engine is a device's: what the host may do does not help it.
    const int home = mapping->second.physical->place();
    const bool copied = !actor.kernel && home != host_place && allows(mapping->second, home);
    if (!own && !copied) return false;
    at = mapping->first + mapping->second.size;
    if (at >= touch.address + touch.size) return true;
  }
  return false;
}

bool Memory::reachable(const Actor& actor, const Touch& touch) const {
  if (const auto block = containing(blocks_, touch.address); block != blocks_.end()) {
    if (!within(*block, touch.address, touch.size)) return false;
    const bool near = block->second.managed || block->second.device == actor.device || !actor.kernel;
    return near || peers_.contains({actor.context, block->second.context});
  }
  if (const auto range = containing(host_, touch.address); range != host_.end()) {
    return within(*range, touch.address, touch.size);
  }
  return mapped(actor, touch);
}

CUresult Memory::access(const Actor& actor, std::initializer_list<Touch> touches, const std::function<void()>& work) {
  const std::shared_lock lock(mutex_);
  for (const auto& touch : touches) {
    if (touch.size != 0 && !reachable(actor, touch)) return CUDA_ERROR_ILLEGAL_ADDRESS;
  }
  work();
  return CUDA_SUCCESS;
}

bool Memory::known_locked(Address address, std::uint64_t size) const {
  const auto holds = [&](const auto& map) {
    const auto entry = containing(map, address);
    return entry != map.end() && within(*entry, address, size);
  };
  return holds(blocks_) || holds(host_) || holds(reservations_);
}

bool Memory::known(Address address, std::uint64_t size) {
  const std::shared_lock lock(mutex_);
  return known_locked(address, size);
}

bool Memory::page_locked(Address address, std::uint64_t size) {
  const std::shared_lock lock(mutex_);
  const auto range = containing(host_, address);
  return range != host_.end() && within(*range, address, size);
}

std::optional<Place> Memory::find_vmm(Address address) const {
  const auto reservation = containing(reservations_, address);
  if (reservation == reservations_.end()) return std::nullopt;
  Place place{Place::Kind::reservation, reservation->first, reservation->second, -1, 0};
  place.reservation = reservation->first;
  place.reservation_size = reservation->second;
  if (const auto mapping = containing(mappings_, address); mapping != mappings_.end()) {
    place.kind = Place::Kind::mapping;
    place.base = mapping->first;
    place.size = mapping->second.size;
    const auto& physical = *mapping->second.physical;
    place.physical = physical.handle;
    place.handle_types = static_cast<unsigned>(physical.properties.requestedHandleTypes);
    place.device = physical.place() == host_place ? -1 : physical.place();
  }
  return place;
}

std::optional<Place> Memory::find(Address address) {
  const std::shared_lock lock(mutex_);
  if (const auto block = containing(blocks_, address); block != blocks_.end()) {
    const auto& found = block->second;
    return Place{Place::Kind::block, block->first, found.size, found.device, found.context, found.managed};
  }
  if (const auto range = containing(host_, address); range != host_.end()) {
    return Place{Place::Kind::host, range->first, range->second.size, range->second.device, range->second.context};
  }
  return find_vmm(address);
}

}  // namespace lowtide::sim

// SPDX-License-Identifier: Apache-2.0
#include "backends/portable/recreated_memory.hpp"

#include <algorithm>
#include <cinttypes>

namespace lowtide::portable {
namespace {

/// Of one search. An allocation and a free take some 100 us: a search that is in vain ends within a second.
constexpr int most_tries = 4096;
/// For one place, after those that are found at the first try or among the spares.
constexpr int most_tries_for_one = 64;
/// Of the addresses that are kept at a time in the search for one place.
constexpr int most_doublings = 12;

template <class Map>
typename Map::node_type node_for(typename Map::mapped_type value) {
  Map one;
  one.emplace(DeviceAddress{}, value);
  return one.extract(one.begin());
}

}  // namespace

bool RecreatedMemory::meets_place(AddressRange range) const {
  const auto next = places_.lower_bound(range.start);
  if (next != places_.end() && next->first < range.end()) return true;
  if (next == places_.begin()) return false;
  const auto& [start, place] = *std::prev(next);
  return AddressRange{start, place.size}.contains(range.start);
}

bool RecreatedMemory::is_wanted(DeviceAddress start, const Spare& spare) const {
  const auto place = places_.find(start);
  return place != places_.end() && is_parked(place->second) && fits(spare, place->second);
}

template <class IsUseless>
bool RecreatedMemory::drop_spares(IsUseless is_useless) noexcept {
  bool memory = false;
  for (auto next = spares_.begin(); next != spares_.end();) {
    const auto entry = next++;
    const auto& [start, spare] = *entry;
    const AddressRange range{start, spare.size};
    if (!is_useless(range, spare)) continue;
    if (!(spare.is_memory ? spare.plain->free(start, spare.context) : spare.plain->let_go(range))) continue;
    memory = memory || spare.is_memory;
    spares_.erase(entry);
  }
  return memory;
}

bool RecreatedMemory::drop_all() noexcept {
  return drop_spares([](AddressRange, const Spare&) { return true; });
}

bool RecreatedMemory::make_room() noexcept {
  const auto is_useless = [this](AddressRange range, const Spare& spare) {
    return spare.is_memory && !is_wanted(range.start, spare);
  };
  if (drop_spares(is_useless)) return true;
  // What others wait for can be had again when it is their turn; until then their addresses do.
  bool made = false;
  for (auto next = spares_.begin(); next != spares_.end();) {
    const auto entry = next++;
    auto& [start, spare] = *entry;
    if (!spare.is_memory || !spare.plain->free(start, spare.context)) continue;
    made = true;
    spare.is_memory = false;
    if (!keep(*spare.plain, {start, spare.size})) spares_.erase(entry);
  }
  return made;
}

Result<DeviceAddress> RecreatedMemory::reserve(PlainMemory& plain, Bytes size, ContextId context) {
  const std::lock_guard lock(mutex_);
  auto node = node_for<Places>({&plain, size, context, State::fresh});
  Spares strays;  // at the places of parked blocks, and held until a place is found that is not
  Result<DeviceAddress> got = DeviceAddress{};
  for (int attempt = 0; attempt < most_tries_for_one; ++attempt) {
    auto stray = node_for<Spares>({&plain, size, context, true});
    got = plain.allocate(size, context);
    if (!got && got.error().code() == Code::device_memory && make_room()) continue;
    if (!got || !meets_place({*got, size})) break;
    stray.key() = *got;
    strays.insert(std::move(stray));
    got = fail(Error::format(Code::device_memory,
                             "the driver gives %s only where parked blocks come back: resume those first",
                             to_text(size).c_str()));
  }
  spares_.merge(strays);
  if (!searching_) (void)drop_all();
  if (!got) return got;
  node.key() = *got;
  places_.insert(std::move(node));
  return got;
}

Status RecreatedMemory::release_reservation(AddressRange range) {
  const std::lock_guard lock(mutex_);
  const auto found = places_.find(range.start);
  if (found == places_.end()) return fail(Code::invalid, "no reservation begins there");
  const Place& place = found->second;
  Status status;
  if (place.state == State::fresh) status = place.plain->free(range.start, place.context);
  if (place.state == State::kept) status = place.plain->let_go(range);
  if (status) places_.erase(found);
  return status;
}

Result<PhysicalId> RecreatedMemory::create(AddressRange range) {
  const std::lock_guard lock(mutex_);
  const auto place = places_.find(range.start);
  if (place == places_.end() || place->second.size != range.size || place->second.state == State::held)
    return fail(Code::invalid, "no free reservation of this size begins there");
  if (place->second.state != State::fresh) {
    if (auto status = recover(place->first, place->second); !status) return fail(status.error());
  }
  place->second.state = State::held;
  return PhysicalId{range.start.value};
}

Status RecreatedMemory::check_held(AddressRange range, PhysicalId physical) {
  const std::lock_guard lock(mutex_);
  const auto place = places_.find(range.start);
  const bool held = place != places_.end() && place->second.state == State::held && place->second.size == range.size;
  if (held && physical.value == range.start.value) return {};
  return fail(Code::invalid, "plain memory is at the address that it was created for, and nowhere else");
}

Status RecreatedMemory::free(DeviceAddress start) {
  const std::lock_guard lock(mutex_);
  const auto place = places_.find(start);
  if (place == places_.end() || place->second.state != State::held) return fail(Code::invalid, "nothing is held there");
  if (auto status = place->second.plain->free(start, place->second.context); !status) return status;
  place->second.state = State::freed;
  return {};
}

Status RecreatedMemory::release(PhysicalId physical) {
  const DeviceAddress start{physical.value};
  {
    const std::lock_guard lock(mutex_);
    const auto place = places_.find(start);
    if (place != places_.end() && is_parked(place->second)) return {};
  }
  return free(start);
}

void RecreatedMemory::keep_address(AddressRange range) {
  const std::lock_guard lock(mutex_);
  const auto place = places_.find(range.start);
  if (place == places_.end() || place->second.state != State::freed) return;
  if (keep(*place->second.plain, range)) place->second.state = State::kept;
}

bool RecreatedMemory::is_taken(PlainMemory& plain, DeviceAddress address) {
  const std::lock_guard lock(mutex_);
  const auto place = places_.find(address);
  const bool is_ours = spares_.contains(address) || (place != places_.end() && !is_parked(place->second));
  return !is_ours && plain.begins_at(address);
}

void RecreatedMemory::begin_search() noexcept {
  if (searching_) return;
  searching_ = true;
  tries_left_ = most_tries;
  (void)drop_all();
  // All at once: one whose neighbours are kept would be placed elsewhere.
  for (auto& [start, place] : places_) {
    if (place.state == State::kept && place.plain->let_go({start, place.size})) place.state = State::let_go;
  }
}

Status RecreatedMemory::recover(DeviceAddress start, Place& place) {
  begin_search();
  if (place.state == State::kept) {  // could not be let go then
    if (auto status = place.plain->let_go({start, place.size}); !status) return status;
    place.state = State::let_go;
  }
  if (take_spare(start, place)) return {};
  const AddressRange wanted{start, place.size};
  (void)drop_spares(
      [&](AddressRange spare, const Spare&) { return spare.start < wanted.end() && wanted.start < spare.end(); });
  for (int tries = 0; tries < most_tries_for_one && tries_left_ > 0;) {
    auto node = node_for<Spares>({});
    const auto got = place.plain->allocate(place.size, place.context);
    if (!got) {
      if (got.error().code() == Code::device_memory && make_room()) {
        ++tries;
        continue;
      }
      return fail(got.error());
    }
    if (*got == start) return {};
    const AddressRange range{*got, place.size};
    if (!is_wanted(*got, {place.plain, place.size, place.context, true})) ++tries;
    --tries_left_;
    hold(std::move(node), range, wanted, place, tries);
  }
  return fail(Error::format(Code::moved,
                            "%s at 0x%" PRIx64 " could not be had back: other memory of this process has the address. "
                            "Nothing changed, the bytes are kept: free that memory and resume again, or register "
                            "lowtide_on_relocate for the tag",
                            to_text(place.size).c_str(), start.value));
}

bool RecreatedMemory::take_spare(DeviceAddress start, const Place& place) {
  const auto spare = spares_.find(start);
  if (spare == spares_.end() || !fits(spare->second, place)) return false;
  spares_.erase(spare);
  return true;
}

bool RecreatedMemory::keep(PlainMemory& plain, AddressRange range) noexcept {
  const bool kept = can_keep_ && plain.keep(range);
  has_kept_ = has_kept_ || kept;
  can_keep_ = can_keep_ && has_kept_;
  return kept;
}

void RecreatedMemory::hold(Spares::node_type node, AddressRange got, AddressRange wanted, const Place& place,
                           int tries) {
  const bool reaches_in = got.start < wanted.start && wanted.start < got.end();
  bool is_memory = is_wanted(got.start, {place.plain, place.size, place.context, true}) || !(reaches_in || can_keep_) ||
                   !place.plain->free(got.start, place.context);
  if (!is_memory) {
    // Its addresses alone do as well, and cost no memory: of what reaches into the wanted place, those before it, and
    // more each time, since a large gap holds many.
    const Bytes before = got.start < wanted.start ? wanted.start - got.start : Bytes{~0ull};
    const Bytes more = std::min(before, place.size * (std::uint64_t{1} << std::min(tries, most_doublings)));
    got.size = std::min(before, got.size);
    if (more > got.size && keep(*place.plain, {got.start, more})) {
      got.size = more;
    } else if (!keep(*place.plain, got)) {
      const auto again = place.plain->allocate(got.size, place.context);
      if (!again) return;
      got.start = *again;
      is_memory = true;
    }
  }
  node.key() = got.start;
  node.mapped() = {place.plain, got.size, place.context, is_memory};
  spares_.insert(std::move(node));
}

void RecreatedMemory::give_back_rest() noexcept {
  const std::lock_guard lock(mutex_);
  if (!searching_) (void)drop_all();
}

void RecreatedMemory::settle() noexcept {
  const std::lock_guard lock(mutex_);
  (void)drop_all();
  if (!searching_) return;
  searching_ = false;
  for (auto& [start, place] : places_) {
    if (place.state != State::let_go) continue;
    place.state = keep(*place.plain, {start, place.size}) ? State::kept : State::freed;
  }
}

}  // namespace lowtide::portable

// SPDX-License-Identifier: Apache-2.0
#include "backends/portable/recreated_memory.hpp"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <optional>
#include <vector>

namespace lowtide::portable {
namespace {

/// Of one search. An allocation and a free take some 100 us: a search that is in vain ends within a second.
constexpr int most_tries = 4096;
/// For one place, after those that are found at the first try or among the spares.
constexpr int most_tries_for_one = 64;

/// Of new places that have others close before them, or lie in a piece of address space that the driver has for itself:
/// what is held of them as memory, for a moment. And the searches for a better one that may be in vain, one after the
/// other, before there are no more.
constexpr Bytes most_as_memory = 2_GiB;
constexpr int most_in_vain = 4;

template <class Map>
typename Map::node_type node_for(typename Map::mapped_type value) {
  Map one;
  one.emplace(DeviceAddress{}, std::move(value));
  return one.extract(one.begin());
}

/// Of `got`, what is not of `wanted`, another range of the same size.
AddressRange outside(AddressRange got, AddressRange wanted) {
  if (got.start < wanted.start) return {got.start, std::min(got.size, wanted.start - got.start)};
  const DeviceAddress start = std::max(got.start, wanted.end());
  return {start, got.end() - start};
}

Failure moved(AddressRange wanted, AddressRange in_the_way) {
  char what[96] = "the driver gives other addresses";
  if (in_the_way.size > Bytes{}) {
    std::snprintf(what, sizeof what, "other memory of this process is at 0x%" PRIx64 " to 0x%" PRIx64,
                  in_the_way.start.value, in_the_way.end().value);
  }
  return fail(Error::format(Code::moved,
                            "%s at 0x%" PRIx64 " could not be had back: %s. Nothing changed, the bytes are kept: free "
                            "that memory and resume again, or register lowtide_on_relocate for the tag",
                            to_text(wanted.size).c_str(), wanted.start.value, what));
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
    if (!is_useless({start, spare.size}, spare)) continue;
    if (spare.is_memory() && !spare.plain->free(start, spare.context)) continue;
    memory = memory || spare.is_memory();
    spares_.erase(entry);
  }
  return memory;
}

bool RecreatedMemory::drop_all() noexcept {
  return drop_spares([](AddressRange, const Spare&) { return true; });
}

bool RecreatedMemory::make_room() noexcept {
  const auto is_useless = [this](AddressRange range, const Spare& spare) {
    return spare.is_memory() && !is_wanted(range.start, spare);
  };
  if (drop_spares(is_useless)) return true;
  // What others wait for can be had again when it is their turn; until then their addresses do.
  bool made = false;
  for (auto next = spares_.begin(); next != spares_.end();) {
    const auto entry = next++;
    auto& [start, spare] = *entry;
    if (!spare.is_memory() || !spare.plain->free(start, spare.context)) continue;
    made = true;
    spare.addresses = HeldAddresses({start, spare.size});
    if (!spare.addresses) spares_.erase(entry);
  }
  return made;
}

Result<DeviceAddress> RecreatedMemory::reserve(PlainMemory& plain, Bytes size, ContextId context) {
  const std::lock_guard lock(mutex_);
  auto node = node_for<Places>({&plain, size, context, State::fresh});
  Result<DeviceAddress> got = fail(Code::device_memory, "");
  if (size >= Margins::alignment && in_vain_ < most_in_vain) {
    got = find_new(node.mapped(), true);
    in_vain_ = got ? 0 : in_vain_ + 1;
  }
  if (!got) got = find_new(node.mapped(), false);
  if (!searching_) (void)drop_all();
  if (!got) return got;
  node.key() = *got;
  places_.insert(std::move(node));
  return got;
}

Result<DeviceAddress> RecreatedMemory::allocate_beside(const std::vector<AddressRange>& passed, Place& place) {
  Result<DeviceAddress> got = DeviceAddress{};
  {
    std::vector<HeldAddresses> held;
    held.reserve(passed.size());
    for (const auto& each : passed) held.emplace_back(each);
    got = place.plain->allocate(place.size, place.context);
  }  // they may be the margins of what came
  if (got && !meets_place({*got, place.size})) place.margins = Margins({*got, place.size});
  return got;
}

Result<DeviceAddress> RecreatedMemory::find_new(Place& place, bool with_margins) {
  // What is no good is held until the end, so that it does not come again: as addresses, or as memory.
  std::vector<AddressRange> passed;
  Spares strays;
  Bytes as_memory;
  Result<DeviceAddress> found = fail(Error::format(Code::device_memory,
                                                   "the driver gives %s only where parked blocks come back, or beside "
                                                   "other memory: resume those first",
                                                   to_text(place.size).c_str()));
  for (int attempt = 0; attempt < most_tries_for_one && (as_memory < most_as_memory || !with_margins); ++attempt) {
    passed.reserve(passed.size() + 1);
    auto stray = node_for<Spares>({place.plain, place.size, place.context});
    auto got = allocate_beside(passed, place);
    if (!got && got.error().code() == Code::device_memory && make_room()) continue;
    const bool is_new = got && !meets_place({*got, place.size});
    if (!got || (is_new && (place.margins.whole() || !with_margins))) {
      found = std::move(got);
      break;
    }
    place.margins = {};
    if (is_new && place.plain->free(*got, place.context)) {
      if (HeldAddresses({*got, place.size})) {
        passed.push_back({*got, place.size});
        continue;
      }
      got = place.plain->allocate(place.size, place.context);  // the driver has its addresses for itself
      if (!got) break;
    }
    stray.key() = *got;
    strays.insert(std::move(stray));
    as_memory += place.size;
  }
  spares_.merge(strays);
  return found;
}

Status RecreatedMemory::release_reservation(AddressRange range) {
  const std::lock_guard lock(mutex_);
  const auto found = places_.find(range.start);
  if (found == places_.end()) return fail(Code::invalid, "no reservation begins there");
  const Place& place = found->second;
  Status status;
  if (place.state == State::fresh) status = place.plain->free(range.start, place.context);
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
  if (place == places_.end() || place->second.state != State::freed || place->second.kept) return;
  place->second.kept = HeldAddresses(range);
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
  std::optional<DeviceAddress> lowest;
  for (auto& [start, place] : places_) {
    if (!is_parked(place)) continue;
    if (!place.kept) place.kept = HeldAddresses({start, place.size});  // who had it may have left
    if (!lowest) lowest = start;
  }
  if (lowest) gaps_.hold_above(*lowest);
}

Result<DeviceAddress> RecreatedMemory::allocate_at(AddressRange wanted, Place& place) {
  place.kept = {};
  place.margins = {};
  auto got = place.plain->allocate(place.size, place.context);
  place.margins = Margins(wanted);
  if (!got || *got != wanted.start) place.kept = HeldAddresses(wanted);
  return got;
}

Status RecreatedMemory::recover(DeviceAddress start, Place& place) {
  begin_search();
  const AddressRange wanted{start, place.size};
  if (take_spare(start, place)) return {};
  (void)drop_spares(
      [&](AddressRange spare, const Spare&) { return spare.start < wanted.end() && wanted.start < spare.end(); });
  for (int tries = 0; tries < most_tries_for_one && tries_left_ > 0;) {
    auto node = node_for<Spares>({});
    const auto got = allocate_at(wanted, place);
    if (!got) {
      if (got.error().code() == Code::device_memory && make_room()) {
        ++tries;
        continue;
      }
      return fail(got.error());
    }
    if (*got == start) return {};
    if (!is_wanted(*got, {place.plain, place.size, place.context})) ++tries;
    --tries_left_;
    hold(std::move(node), {*got, place.size}, wanted, place);
    if (take_spare(start, place)) return {};
    if (tries == 1) gaps_.hold_above(wanted.end());  // something is free there that was not before
  }
  return moved(wanted, place.kept ? AddressRange{} : HostGaps::mapped_in(wanted));
}

bool RecreatedMemory::take_spare(DeviceAddress start, Place& place) {
  const auto spare = spares_.find(start);
  if (spare == spares_.end() || !fits(spare->second, place)) return false;
  spares_.erase(spare);
  return true;
}

void RecreatedMemory::hold(Spares::node_type node, AddressRange got, AddressRange wanted, Place& place) {
  Spare& spare = node.mapped();
  spare = {place.plain, got.size, place.context};
  // Its addresses alone do as well, and cost no memory; but for those that are wanted.
  if (!is_wanted(got.start, spare) && place.plain->free(got.start, place.context)) {
    if (!place.kept) place.kept = HeldAddresses(wanted);
    got = outside(got, wanted);
    spare.addresses = HeldAddresses(got);
    if (!spare.addresses) {  // this driver has its addresses for itself
      const auto again = place.plain->allocate(spare.size, place.context);
      if (!again) return;
      got = {*again, spare.size};
    }
  }
  spare.size = got.size;
  node.key() = got.start;
  spares_.insert(std::move(node));
}

void RecreatedMemory::give_back_rest() noexcept {
  const std::lock_guard lock(mutex_);
  if (!searching_) (void)drop_all();
}

void RecreatedMemory::settle() noexcept {
  const std::lock_guard lock(mutex_);
  (void)drop_all();
  gaps_.let_go();
  searching_ = false;
}

}  // namespace lowtide::portable

// SPDX-License-Identifier: Apache-2.0
#include "backends/portable/recreated_memory.hpp"

#include <cinttypes>

namespace lowtide::portable {
namespace {

/// Of one search. An allocation and a free take some 100 us: a search that is in vain ends within a second.
constexpr int most_tries = 4096;
/// For one place, after those that are found at the first try or among the spares.
constexpr int most_tries_for_one = 64;

template <class Map>
typename Map::node_type node_for(typename Map::mapped_type value) {
  Map one;
  one.emplace(DeviceAddress{}, value);
  return one.extract(one.begin());
}

}  // namespace

bool RecreatedMemory::meets_parked(AddressRange range) const {
  auto next = places_.lower_bound(range.start);
  if (next != places_.begin()) {
    const auto& [start, place] = *std::prev(next);
    if (is_parked(place) && AddressRange{start, place.size}.contains(range.start)) return true;
  }
  for (; next != places_.end() && next->first < range.end(); ++next) {
    if (is_parked(next->second)) return true;
  }
  return false;
}

bool RecreatedMemory::is_wanted(AddressRange range) const {
  const auto place = places_.find(range.start);
  return place != places_.end() && place->second.size == range.size && is_parked(place->second);
}

Status RecreatedMemory::drop(DeviceAddress start, const Spare& spare) noexcept {
  return spare.is_memory ? plain_.free(start, spare.context) : plain_.let_go({start, spare.size});
}

template <class IsUseless>
bool RecreatedMemory::drop_spares(IsUseless is_useless) noexcept {
  bool memory = false;
  for (auto spare = spares_.begin(); spare != spares_.end();) {
    const auto next = std::next(spare);
    if (is_useless(AddressRange{spare->first, spare->second.size}) && drop(spare->first, spare->second)) {
      memory = memory || spare->second.is_memory;
      spares_.erase(spare);
    }
    spare = next;
  }
  return memory;
}

Result<DeviceAddress> RecreatedMemory::reserve(Bytes size) {
  const std::lock_guard lock(mutex_);
  const ContextId context = plain_.context_for_allocation();
  auto node = node_for<Places>({size, context, State::fresh});
  Spares strays;  // at the places of parked blocks, and held until a place is found that is not
  Result<DeviceAddress> got = DeviceAddress{};
  for (int attempt = 0; attempt < most_tries_for_one; ++attempt) {
    auto stray = node_for<Spares>({size, context, true});
    got = plain_.allocate(size, context);
    if (!got || !meets_parked({*got, size})) break;
    stray.key() = *got;
    strays.insert(std::move(stray));
    got = fail(Error::format(Code::device_memory,
                             "the driver gives %s only where parked blocks come back: resume those first",
                             to_text(size).c_str()));
  }
  spares_.merge(strays);
  if (!searching_) (void)drop_spares([](AddressRange) { return true; });
  if (!got) return got;
  node.key() = *got;
  places_.insert(std::move(node));
  return got;
}

Status RecreatedMemory::release_reservation(AddressRange range) {
  const std::lock_guard lock(mutex_);
  const auto place = places_.find(range.start);
  if (place == places_.end()) return fail(Code::invalid, "no reservation begins there");
  if (place->second.state == State::fresh) {
    if (auto status = plain_.free(range.start, place->second.context); !status) return status;
  }
  if (place->second.state == State::kept) {
    if (auto status = plain_.let_go(range); !status) return status;
  }
  places_.erase(place);
  return {};
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
  if (auto status = plain_.free(start, place->second.context); !status) return status;
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
  if (place == places_.end() || place->second.state != State::freed || !can_keep_) return;
  if (plain_.keep(range)) place->second.state = State::kept;
}

bool RecreatedMemory::is_taken(DeviceAddress address) {
  const std::lock_guard lock(mutex_);
  const auto place = places_.find(address);
  const bool is_ours = spares_.contains(address) || (place != places_.end() && !is_parked(place->second));
  return !is_ours && plain_.begins_at(address);
}

void RecreatedMemory::begin_search() noexcept {
  if (searching_) return;
  searching_ = true;
  tries_left_ = most_tries;
  // All at once: one whose neighbours are kept would be placed elsewhere.
  for (auto& [start, place] : places_) {
    if (place.state == State::kept && plain_.let_go({start, place.size})) place.state = State::let_go;
  }
}

Status RecreatedMemory::recover(DeviceAddress start, Place& place) {
  begin_search();
  if (place.state == State::kept) {  // could not be let go then
    if (auto status = plain_.let_go({start, place.size}); !status) return status;
    place.state = State::let_go;
  }
  if (take_spare(start, place)) return {};
  for (int tries = 0; tries < most_tries_for_one && tries_left_ > 0;) {
    auto node = node_for<Spares>({});
    const auto got = plain_.allocate(place.size, place.context);
    if (!got) {
      if (got.error().code() == Code::device_memory &&
          drop_spares([&](AddressRange spare) { return !is_wanted(spare); })) {
        ++tries;
        continue;
      }
      return fail(got.error());
    }
    if (*got == start) return {};
    const AddressRange range{*got, place.size};
    if (!is_wanted(range)) ++tries;
    --tries_left_;
    hold(std::move(node), range, place.context);
  }
  return fail(Error::format(Code::moved,
                            "%s at 0x%" PRIx64 " could not be had back: other memory of this process has the address. "
                            "Nothing changed, the bytes are kept: free that memory and resume again, or register "
                            "lowtide_on_relocate for the tag",
                            to_text(place.size).c_str(), start.value));
}

bool RecreatedMemory::take_spare(DeviceAddress start, const Place& place) {
  const auto spare = spares_.find(start);
  if (spare == spares_.end() || spare->second.size != place.size || !spare->second.is_memory) return false;
  spares_.erase(spare);
  return true;
}

void RecreatedMemory::hold(Spares::node_type node, AddressRange got, ContextId context) {
  node.key() = got.start;
  node.mapped() = {got.size, context, true};
  auto& spare = spares_.insert(std::move(node)).position->second;
  // Its addresses alone do as well, and cost no memory.
  if (is_wanted(got) || !can_keep_ || !plain_.free(got.start, context)) return;
  spare.is_memory = false;
  can_keep_ = plain_.keep(got);
  if (!can_keep_) spares_.erase(got.start);
}

void RecreatedMemory::settle() noexcept {
  const std::lock_guard lock(mutex_);
  (void)drop_spares([](AddressRange) { return true; });
  if (!searching_) return;
  searching_ = false;
  for (auto& [start, place] : places_) {
    if (place.state != State::let_go) continue;
    place.state = plain_.keep({start, place.size}) ? State::kept : State::freed;
  }
}

}  // namespace lowtide::portable

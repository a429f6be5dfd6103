// SPDX-License-Identifier: Apache-2.0
#include "backends/hip/vmm_backend.hpp"

#include <algorithm>
#include <array>
#include <cinttypes>

namespace lowtide::hip {
namespace {

void* pointer(DeviceAddress address) { return reinterpret_cast<void*>(address.value); }
DeviceAddress address_of(const void* pointer) { return {reinterpret_cast<std::uintptr_t>(pointer)}; }

hipMemAllocationProp properties_of(DeviceId device, bool export_fd) {
  hipMemAllocationProp properties{};
  properties.type = hipMemAllocationTypePinned;
  properties.location = {hipMemLocationTypeDevice, index_of(device)};
  if (export_fd) properties.requestedHandleType = hipMemHandleTypePosixFileDescriptor;
  return properties;
}

Failure not_mapped() { return fail(Code::invalid, "the range is not one or more whole mappings"); }

}  // namespace

bool Reservations::meet(AddressRange range) {
  const auto next = ranges.lower_bound(range.start);
  return (next != ranges.end() && next->first < range.end()) || at(range.start) != nullptr;
}

Reservations::Range* Reservations::at(DeviceAddress address) {
  const auto next = ranges.upper_bound(address);
  if (next == ranges.begin()) return nullptr;
  auto& [start, found] = *std::prev(next);
  return AddressRange{start, found.size}.contains(address) ? &found : nullptr;
}

VmmBackend::VmmBackend(Reservations& reservations, const Runtime& runtime, DeviceId device, std::string device_name,
                       Capabilities capabilities, std::string reason, VmmHabits habits)
    : Device(runtime, device, std::move(device_name), capabilities, std::move(reason)),
      reservations_(reservations),
      habits_(habits) {}

Result<DeviceAddress> VmmBackend::reserve(Bytes size, ContextId /*context*/) {
  constexpr std::size_t most_tries = 64;
  std::map<DeviceAddress, Reservations::Range> one;
  one.emplace(DeviceAddress{}, Reservations::Range{size});
  auto node = one.extract(one.begin());
  std::array<void*, most_tries> strays{};  // where blocks are parked that lost their address: held until another comes
  std::size_t count = 0;
  DeviceAddress start{};
  auto status = on_device("hipMemAddressReserve", [&]() -> Status {
    while (count < most_tries) {
      void* address = nullptr;
      const auto result =
          runtime().hipMemAddressReserve(&address, size.value, capabilities().granularity.value, nullptr, 0);
      if (result != hipSuccess) return fail(runtime().error(result, "hipMemAddressReserve", to_text(size).c_str()));
      const std::lock_guard lock(reservations_.mutex);
      if (!reservations_.meet({address_of(address), size})) {
        node.key() = start = address_of(address);
        reservations_.ranges.insert(std::move(node));
        return {};
      }
      strays[count++] = address;
    }
    return fail(Error::format(Code::device_memory,
                              "the runtime gives %s only where parked blocks come back: resume those first",
                              to_text(size).c_str()));
  });
  if (count > 0) {
    (void)on_device("hipMemAddressFree", [&]() -> Status {
      while (count > 0) (void)runtime().hipMemAddressFree(strays[--count], size.value);
      return {};
    });
  }
  if (!status) return fail(status.error());
  return start;
}

Status VmmBackend::release_reservation(AddressRange range) {
  const std::lock_guard lock(reservations_.mutex);
  const auto reservation = reservations_.ranges.find(range.start);
  const bool lost = reservation != reservations_.ranges.end() && reservation->second.lost;
  auto status = lost ? Status() : on_device("hipMemAddressFree", [&] {
    return runtime().hipMemAddressFree(pointer(range.start), range.size.value);
  });
  if (status && reservation != reservations_.ranges.end()) reservations_.ranges.erase(reservation);
  return status;
}

Status VmmBackend::reserve_again(DeviceAddress start, Reservations::Range& range) const {
  range.held = {};
  void* got = nullptr;
  const auto result =
      runtime().hipMemAddressReserve(&got, range.size.value, capabilities().granularity.value, pointer(start), 0);
  range.lost = result != hipSuccess || address_of(got) != start;
  if (!range.lost) return {};
  range.held = HeldAddresses({start, range.size});
  if (result == hipSuccess) (void)runtime().hipMemAddressFree(got, range.size.value);
  return fail(Error::format(Code::moved,
                            "the address range of %s at 0x%" PRIx64 " could not be had back: other memory of this "
                            "process has it. The bytes are kept: free that memory and resume again, or register "
                            "lowtide_on_relocate for the tag",
                            to_text(range.size).c_str(), start.value));
}

Status VmmBackend::keep_address(AddressRange range) {
  if (!habits_.cycles) return {};
  const std::lock_guard lock(reservations_.mutex);
  const auto reservation = reservations_.ranges.find(range.start);
  if (reservation == reservations_.ranges.end()) return fail(Code::invalid, "no reservation begins there");
  if (!reservation->second.lost) {
    auto freed = on_device("hipMemAddressFree",
                           [&] { return runtime().hipMemAddressFree(pointer(range.start), range.size.value); });
    if (!freed) return freed;
  }
  return reserve_again(range.start, reservation->second);
}

bool VmmBackend::is_taken(DeviceAddress address) {
  {
    const std::lock_guard lock(reservations_.mutex);
    const auto* const reservation = reservations_.at(address);
    if (reservation == nullptr || !reservation->lost) return false;
  }
  return begins_at(address);
}

Status VmmBackend::add_chunk(Memory& memory, Bytes size, Bytes wanted) const {
  const auto properties = properties_of(device(), capabilities().export_fd);
  hipMemGenericAllocationHandle_t handle = nullptr;
  const auto result = runtime().hipMemCreate(&handle, size.value, &properties, 0);
  if (result != hipSuccess) {
    return fail(runtime().error(result, "hipMemCreate", (to_text(size) + " of " + to_text(wanted)).c_str()));
  }
  memory.chunks.push_back({handle, size});
  memory.size += size;
  return {};
}

Status VmmBackend::complete(Memory& memory, Bytes size) const {
  while (memory.size < size) {
    const Bytes missing = size - memory.size;
    if (auto added = add_chunk(memory, std::min(habits_.chunk.value_or(missing), missing), size); !added) return added;
  }
  return {};
}

Result<PhysicalId> VmmBackend::create(AddressRange range) {
  if (const std::lock_guard lock(reservations_.mutex); auto* const reservation = reservations_.at(range.start)) {
    if (reservation->lost) {
      if (auto status = reserve_again(range.start, *reservation); !status) return fail(status.error());
    }
  }
  const Bytes chunk = habits_.chunk.value_or(range.size);
  std::map<std::uint64_t, Memory> made;
  Memory& memory = made[0];
  memory.chunks.reserve((range.size.value + chunk.value - 1) / chunk.value);
  auto status = on_device("hipMemCreate", [&] { return complete(memory, range.size); });
  if (!status) {
    if (on_device("hipMemRelease", [&] { return release_chunks(memory); })) return fail(status.error());
    // What cannot be undone now is the caller's to release; a map of it tries to complete it.
  }
  auto node = made.extract(made.begin());
  const std::lock_guard lock(mutex_);
  node.key() = next_id_++;
  return PhysicalId{memory_.insert(std::move(node)).position->first};
}

Status VmmBackend::release_chunks(Memory& memory) const {
  while (!memory.chunks.empty()) {
    const auto result = runtime().hipMemRelease(memory.chunks.back().handle);
    if (auto status = runtime().status(result, "hipMemRelease"); !status) return status;
    memory.size = memory.size - memory.chunks.back().size;
    memory.chunks.pop_back();
  }
  return {};
}

VmmBackend::Memory* VmmBackend::find(PhysicalId physical) {
  const std::lock_guard lock(mutex_);
  const auto found = memory_.find(physical.value);
  return found == memory_.end() ? nullptr : &found->second;
}

Status VmmBackend::release(PhysicalId physical) {
  Memory* const memory = find(physical);
  if (memory == nullptr) return fail(Code::invalid, "there is no such physical memory");
  auto status = on_device("hipMemRelease", [&]() -> Status {
    if (auto unmapped = unmap_chunks(*memory); !unmapped) return unmapped;
    return release_chunks(*memory);
  });
  if (!status) return status;
  const std::lock_guard lock(mutex_);
  memory_.erase(physical.value);
  return {};
}

/// What an earlier unmap or undo had to leave is at its place already. Memory that is all mapped is the runtime's to
/// refuse.
Status VmmBackend::map_chunks(Memory& memory, DeviceAddress start) {
  if (!memory.mapped) memory.start = start;
  DeviceAddress at = start;
  for (Chunk& chunk : memory.chunks) {
    if (memory.mapped || !chunk.mapped) {
      const auto result = runtime().hipMemMap(pointer(at), chunk.size.value, 0, chunk.handle, 0);
      if (auto status = runtime().status(result, "hipMemMap"); !status) {
        if (!memory.mapped) (void)unmap_chunks(memory);
        return status;
      }
      chunk.mapped = true;
    }
    at = at + chunk.size;
  }
  memory.mapped = true;
  memory.access.clear();
  return {};
}

void VmmBackend::note_left(Memory& memory) {
  const bool is_left = !memory.mapped && std::any_of(memory.chunks.begin(), memory.chunks.end(),
                                                     [](const Chunk& chunk) { return chunk.mapped; });
  const std::lock_guard lock(mutex_);
  memory.left = is_left ? AddressRange{memory.start, memory.size} : AddressRange{};
}

VmmBackend::Memory* VmmBackend::left_at(AddressRange range, const Memory& wanted) {
  const std::lock_guard lock(mutex_);
  for (auto& [id, memory] : memory_) {
    if (&memory != &wanted && memory.left.start < range.end() && range.start < memory.left.end()) return &memory;
  }
  return nullptr;
}

Status VmmBackend::clear(AddressRange range, const Memory& wanted) {
  while (Memory* const left = left_at(range, wanted)) {
    if (auto status = unmap_chunks(*left); !status) return status;
  }
  return {};
}

Status VmmBackend::map(AddressRange range, PhysicalId physical) {
  Memory* const memory = find(physical);
  if (memory == nullptr) return fail(Code::invalid, "there is no such physical memory");
  if (memory->size > range.size) return fail(Code::invalid, "the physical memory is of another size");
  std::map<DeviceAddress, Memory*> entry;
  entry.emplace(range.start, memory);
  auto status = on_device("hipMemMap", [&]() -> Status {
    if (auto cleared = clear(range, *memory); !cleared) return cleared;
    if (auto completed = complete(*memory, range.size); !completed) return completed;
    if (memory->start != range.start && !memory->mapped) {
      if (auto unmapped = unmap_chunks(*memory); !unmapped) return unmapped;
    }
    return map_chunks(*memory, range.start);
  });
  note_left(*memory);
  if (!status) return status;
  const std::lock_guard lock(mutex_);
  mapped_.merge(entry);
  return {};
}

VmmBackend::Memory* VmmBackend::mapped_at(DeviceAddress start) {
  const std::lock_guard lock(mutex_);
  const auto found = mapped_.find(start);
  return found == mapped_.end() ? nullptr : found->second;
}

template <class Call>
Status VmmBackend::for_each_mapped(AddressRange range, Call call) {
  DeviceAddress at = range.start;
  while (at < range.end()) {
    Memory* const memory = mapped_at(at);
    if (memory == nullptr || at + memory->size > range.end()) return not_mapped();
    at = at + memory->size;
    if (auto status = call(*memory); !status) return status;
  }
  return {};
}

Status VmmBackend::unmap_chunks(Memory& memory) {
  DeviceAddress at = memory.start;
  for (Chunk& chunk : memory.chunks) {
    if (chunk.mapped) {
      const auto result = runtime().hipMemUnmap(pointer(at), chunk.size.value);
      if (auto status = runtime().status(result, "hipMemUnmap"); !status) return status;
      chunk.mapped = false;
    }
    at = at + chunk.size;
  }
  note_left(memory);
  return {};
}

Status VmmBackend::put_back(Memory& memory) const {
  DeviceAddress at = memory.start;
  for (Chunk& chunk : memory.chunks) {
    if (!chunk.mapped) {
      const auto result = runtime().hipMemMap(pointer(at), chunk.size.value, 0, chunk.handle, 0);
      if (auto status = runtime().status(result, "hipMemMap"); !status) return status;
      chunk.mapped = true;
      const auto accessed =
          memory.access.empty()
              ? hipSuccess
              : runtime().hipMemSetAccess(pointer(at), chunk.size.value, memory.access.data(), memory.access.size());
      if (auto status = runtime().status(accessed, "hipMemSetAccess"); !status) return status;
    }
    at = at + chunk.size;
  }
  return {};
}

/// Either all of it is back where it was, or all of it counts as unmapped: then what could not be unmapped goes with
/// the release, which says so if it cannot, or is found by the next map.
Status VmmBackend::unmap(AddressRange range) {
  if (auto status = for_each_mapped(range, [](Memory&) { return Status(); }); !status) return status;
  auto status = on_device("hipMemUnmap", [&]() -> Status {
    auto unmapped = for_each_mapped(range, [&](Memory& memory) { return unmap_chunks(memory); });
    const bool stays = !unmapped && for_each_mapped(range, [&](Memory& memory) { return put_back(memory); });
    return stays ? unmapped : Status();
  });
  if (!status) return status;
  (void)for_each_mapped(range, [this](Memory& memory) -> Status {
    memory.mapped = false;
    note_left(memory);
    return {};
  });
  const std::lock_guard lock(mutex_);
  mapped_.erase(mapped_.lower_bound(range.start), mapped_.lower_bound(range.end()));
  return {};
}

Status VmmBackend::set_access(AddressRange range, std::span<const DeviceId> peers) {
  std::vector<hipMemAccessDesc> access{
      {{hipMemLocationTypeDevice, index_of(device())}, hipMemAccessFlagsProtReadWrite}};
  for (const DeviceId peer : peers) {
    access.push_back({{hipMemLocationTypeDevice, index_of(peer)}, hipMemAccessFlagsProtReadWrite});
  }
  auto status = on_device("hipMemSetAccess", [&] {
    return runtime().hipMemSetAccess(pointer(range.start), range.size.value, access.data(), access.size());
  });
  if (!status) return status;
  return for_each_mapped(range, [&](Memory& memory) -> Status {
    memory.access = access;
    return {};
  });
}

Result<Capabilities> vmm_capabilities(const Runtime& runtime, DeviceId device, VmmHabits habits, bool export_fd) {
  const auto properties = properties_of(device, export_fd);
  std::size_t granule = 0;
  const auto result =
      runtime.hipMemGetAllocationGranularity(&granule, &properties, hipMemAllocationGranularityRecommended);
  if (result != hipSuccess) return fail(runtime.error(result, "hipMemGetAllocationGranularity"));
  return Capabilities{.stable_address = !habits.cycles,
                      .reserves_each = habits.cycles,
                      .export_fd = export_fd,
                      .granularity = {granule}};
}

}  // namespace lowtide::hip

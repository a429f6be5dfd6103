// SPDX-License-Identifier: Apache-2.0
#include "backends/hip/vmm_backend.hpp"

#include <algorithm>
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

VmmBackend::VmmBackend(const Runtime& runtime, DeviceId device, std::string device_name, Capabilities capabilities,
                       std::string reason, VmmHabits habits)
    : Device(runtime, device, std::move(device_name), capabilities, std::move(reason)), habits_(habits) {}

Result<DeviceAddress> VmmBackend::reserve(Bytes size) {
  void* address = nullptr;
  const auto granule = capabilities().granularity.value;
  auto status = on_device("hipMemAddressReserve", [&]() -> Status {
    return runtime().status(runtime().hipMemAddressReserve(&address, size.value, granule, nullptr, 0),
                            "hipMemAddressReserve", to_text(size).c_str());
  });
  if (!status) return fail(status.error());
  try {
    const std::lock_guard lock(mutex_);
    reservations_[address_of(address)] = {size};
  } catch (...) {
    (void)on_device("hipMemAddressFree", [&] { return runtime().hipMemAddressFree(address, size.value); });
    throw;
  }
  return address_of(address);
}

Status VmmBackend::release_reservation(AddressRange range) {
  const std::lock_guard lock(mutex_);
  const auto reservation = reservations_.find(range.start);
  const bool lost = reservation != reservations_.end() && reservation->second.lost;
  auto status = lost ? Status() : on_device("hipMemAddressFree", [&] {
    return runtime().hipMemAddressFree(pointer(range.start), range.size.value);
  });
  if (status && reservation != reservations_.end()) reservations_.erase(reservation);
  return status;
}

Status VmmBackend::reserve_again(AddressRange range) const {
  void* got = nullptr;
  const auto result =
      runtime().hipMemAddressReserve(&got, range.size.value, capabilities().granularity.value, pointer(range.start), 0);
  if (result == hipSuccess && address_of(got) == range.start) return {};
  if (result == hipSuccess) (void)runtime().hipMemAddressFree(got, range.size.value);
  return fail(Error::format(Code::moved,
                            "the address range of %s at 0x%" PRIx64 " could not be had back: other memory of this "
                            "process has it. The bytes are kept: free that memory and resume again, or register "
                            "lowtide_on_relocate for the tag",
                            to_text(range.size).c_str(), range.start.value));
}

Status VmmBackend::keep_address(AddressRange range) {
  if (!habits_.cycles) return {};
  const std::lock_guard lock(mutex_);
  const auto reservation = reservations_.find(range.start);
  if (reservation == reservations_.end()) return fail(Code::invalid, "no reservation begins there");
  if (!reservation->second.lost) {
    auto freed = on_device("hipMemAddressFree",
                           [&] { return runtime().hipMemAddressFree(pointer(range.start), range.size.value); });
    if (!freed) return freed;
  }
  auto status = reserve_again(range);
  reservation->second.lost = !status;
  return status;
}

bool VmmBackend::is_taken(DeviceAddress address) {
  {
    const std::lock_guard lock(mutex_);
    const Reservation* const reservation = reservation_at(address);
    if (reservation == nullptr || !reservation->lost) return false;
  }
  return begins_at(address);
}

VmmBackend::Reservation* VmmBackend::reservation_at(DeviceAddress address) {
  const auto next = reservations_.upper_bound(address);
  if (next == reservations_.begin()) return nullptr;
  auto& [start, reservation] = *std::prev(next);
  return AddressRange{start, reservation.size}.contains(address) ? &reservation : nullptr;
}

Status VmmBackend::add_chunk(Memory& memory, Bytes size) const {
  const auto properties = properties_of(device(), capabilities().export_fd);
  hipMemGenericAllocationHandle_t handle = nullptr;
  const auto result = runtime().hipMemCreate(&handle, size.value, &properties, 0);
  if (result != hipSuccess) {
    return fail(runtime().error(result, "hipMemCreate", (to_text(size) + " of " + to_text(memory.size)).c_str()));
  }
  memory.chunks.push_back({handle, size});
  return {};
}

Result<PhysicalId> VmmBackend::create(AddressRange range) {
  if (const std::lock_guard lock(mutex_); Reservation* const reservation = reservation_at(range.start)) {
    if (reservation->lost) {
      if (auto status = reserve_again(range); !status) return fail(status.error());
      reservation->lost = false;
    }
  }
  const Bytes chunk = habits_.chunk.value_or(range.size);
  std::map<std::uint64_t, Memory> made;
  Memory& memory = made[0];
  memory.size = range.size;
  memory.chunks.reserve((range.size.value + chunk.value - 1) / chunk.value);
  auto status = on_device("hipMemCreate", [&]() -> Status {
    for (Bytes at; at < range.size; at += chunk) {
      if (auto added = add_chunk(memory, std::min(chunk, range.size - at)); !added) return added;
    }
    return {};
  });
  if (!status) {
    (void)on_device("hipMemRelease", [&] { return release_chunks(memory); });
    return fail(status.error());
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
  auto status = on_device("hipMemRelease", [&] { return release_chunks(*memory); });
  if (!status) return status;
  const std::lock_guard lock(mutex_);
  memory_.erase(physical.value);
  return {};
}

Status VmmBackend::map_chunks(Memory& memory, DeviceAddress start) const {
  Bytes at;
  for (std::size_t i = 0; i < memory.chunks.size(); ++i) {
    const Chunk& chunk = memory.chunks[i];
    const auto result = runtime().hipMemMap(pointer(start + at), chunk.size.value, 0, chunk.handle, 0);
    if (auto status = runtime().status(result, "hipMemMap"); !status) {
      while (i-- > 0) {
        at = at - memory.chunks[i].size;
        (void)runtime().hipMemUnmap(pointer(start + at), memory.chunks[i].size.value);
      }
      return status;
    }
    at += chunk.size;
  }
  for (Chunk& chunk : memory.chunks) chunk.mapped = true;
  memory.start = start;
  memory.access.clear();
  return {};
}

Status VmmBackend::map(AddressRange range, PhysicalId physical) {
  Memory* const memory = find(physical);
  if (memory == nullptr || memory->size != range.size) return fail(Code::invalid, "there is no such physical memory");
  std::map<DeviceAddress, Memory*> entry;
  entry.emplace(range.start, memory);
  auto status = on_device("hipMemMap", [&] { return map_chunks(*memory, range.start); });
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

Status VmmBackend::unmap_chunks(Memory& memory) const {
  DeviceAddress at = memory.start;
  for (Chunk& chunk : memory.chunks) {
    if (chunk.mapped) {
      const auto result = runtime().hipMemUnmap(pointer(at), chunk.size.value);
      if (auto status = runtime().status(result, "hipMemUnmap"); !status) return status;
      chunk.mapped = false;
    }
    at = at + chunk.size;
  }
  return {};
}

/// What cannot be mapped again now stays noted as unmapped: an unmap that is repeated goes on there.
void VmmBackend::put_back(Memory& memory) const {
  DeviceAddress at = memory.start;
  for (Chunk& chunk : memory.chunks) {
    if (!chunk.mapped) {
      chunk.mapped = runtime().hipMemMap(pointer(at), chunk.size.value, 0, chunk.handle, 0) == hipSuccess;
      if (chunk.mapped && !memory.access.empty())
        (void)runtime().hipMemSetAccess(pointer(at), chunk.size.value, memory.access.data(), memory.access.size());
    }
    at = at + chunk.size;
  }
}

Status VmmBackend::unmap(AddressRange range) {
  if (auto status = for_each_mapped(range, [](Memory&) { return Status(); }); !status) return status;
  auto status = on_device("hipMemUnmap", [&]() -> Status {
    auto unmapped = for_each_mapped(range, [&](Memory& memory) { return unmap_chunks(memory); });
    if (unmapped) return unmapped;
    (void)for_each_mapped(range, [&](Memory& memory) -> Status {
      put_back(memory);
      return {};
    });
    return unmapped;
  });
  if (!status) return status;
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

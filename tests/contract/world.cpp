// SPDX-License-Identifier: Apache-2.0
#include "tests/contract/world.hpp"

#include <algorithm>
#include <numeric>
#include <ostream>
#include <random>
#include <stdexcept>

#include "allocator/base/log.hpp"

namespace lowtide::test {
namespace {

/// The test's own calls must work; those that are allowed to fail are looked at by the test.
void must(const Status& status) {
  if (!status) throw std::runtime_error(status.error().message());
}

void must(CUresult result) {
  if (result != CUDA_SUCCESS) throw std::runtime_error("the driver answered " + std::to_string(result));
}

std::vector<std::uint8_t> random_bytes(Bytes size, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::uint8_t> bytes(size.value);
  for (std::size_t i = 0; i + 8 <= bytes.size(); i += 8) {
    const auto word = random();
    std::memcpy(&bytes[i], &word, 8);
  }
  for (std::size_t i = bytes.size() / 8 * 8; i < bytes.size(); ++i) bytes[i] = static_cast<std::uint8_t>(random());
  return bytes;
}

}  // namespace

TagName tag_name(std::string_view text) { return TagName::parse(text).value(); }

World::World(const cuda::Driver& driver, std::size_t device_count, BackupSettings backup,
             std::unique_ptr<DiskCalls> disk_calls, const BackendKind& kind)
    : store(backup), disk(store.budget(), backup, {}, std::move(disk_calls)) {
  set_log_level(LogLevel::off);
  for (std::size_t i = 0; i < device_count; ++i) devices.emplace_back(driver, static_cast<int>(i), kind);
}

const BackendKind vmm_kind{"vmm",
                           [](const cuda::Driver& driver, DeviceId device) -> std::unique_ptr<Backend> {
                             const Capabilities can{
                                 .stable_address = true, .export_fd = true, .rdma = true, .granularity = 2_MiB};
                             return std::make_unique<cuda::VmmBackend>(driver, device, "simulated", can, "test");
                           },
                           "cuMemUnmap"};
const BackendKind recreate_kind{"recreate",
                                [](const cuda::Driver& driver, DeviceId device) -> std::unique_ptr<Backend> {
                                  return std::make_unique<portable::RecreateBackend<cuda::Device>>(
                                      driver, device, "simulated", portable::plain_capabilities(true, -1), "test");
                                },
                                "cuMemFree_v2"};
const std::vector<const BackendKind*> backend_kinds{&vmm_kind, &recreate_kind};

World::Device::Device(const cuda::Driver& its_driver, int ordinal, const BackendKind& kind)
    : driver(its_driver), index(ordinal) {
  CUcontext primary = nullptr;
  must(driver.cuDevicePrimaryCtxRetain(&primary, index));
  context = {reinterpret_cast<std::uintptr_t>(primary)};
  backend = kind.make(driver, DeviceId{index});
  must(backend->attach(context));
}

World::Device::~Device() {
  backend.reset();
  (void)driver.cuDevicePrimaryCtxRelease_v2(index);
}

World::~World() {
  free_all();
  store.set_settings({BackupSettings::Retain::none});
  stores.trim();  // while the backend lives
}

Result<TransitionReport> World::pause(const std::optional<TagName>& tag) {
  auto report = transitions.pause(tag, settings, {});
  note_discarded();
  return report;
}

bool World::discards(const KnownBlock& block) const {
  const auto found = settings.tags.find(block.tag);
  return found != settings.tags.end() && found->second.pause == Action::discard;
}

void World::note_discarded() {
  for (auto& block : blocks) {
    if (block.live && discards(block) && !is_resident(block)) block.known = false;
  }
}

World::KnownBlock& World::add(const char* tag, Bytes size, std::size_t device) {
  const auto address = table.allocate(backend(device), tag_name(tag), context(device), size);
  if (!address) throw std::runtime_error(address.error().message());
  return adopt(*address, tag, size, device);
}

World::KnownBlock& World::adopt(DeviceAddress address, const char* tag, Bytes size, std::size_t device) {
  auto& block = blocks.emplace_back(KnownBlock{address, size, tag_name(tag), device, {}, true});
  write(block);
  return block;
}

void World::write(KnownBlock& block) {
  block.bytes = random_bytes(block.size, ++seed_);
  block.known = true;
  must(backend(block.device).copy_in(block.range(), block.bytes.data()));
  must(backend(block.device).finish_copies());
}

void World::write_unknown() {
  for (auto& block : blocks) {
    if (block.live && !block.known && is_resident(block)) write(block);
  }
}

void World::free_all() {
  for (auto& block : blocks) {
    if (block.live) (void)table.free(block.address);
  }
  blocks.clear();
}

bool World::is_resident(const KnownBlock& block) const {
  const auto view = table.find(block.address);
  return view && view->resident;
}

bool World::is_to_be_parked(const KnownBlock& block) const {
  const auto found = settings.tags.find(block.tag);
  return found == settings.tags.end() || found->second.pause != Action::keep;
}

std::size_t World::parked_blocks() const {
  return static_cast<std::size_t>(std::count_if(
      blocks.begin(), blocks.end(), [this](const KnownBlock& block) { return block.live && !is_resident(block); }));
}

bool World::read(const KnownBlock& block, std::vector<std::uint8_t>& bytes) {
  bytes.assign(block.size.value, 0);
  if (!is_resident(block)) return table.read_backup(block.range(), bytes.data()).has_value();
  Backend& device = backend(block.device);
  return device.copy_out(bytes.data(), block.range()) && device.finish_copies();
}

std::string World::complaint() {
  std::vector<std::uint8_t> bytes;
  for (auto& block : blocks) {
    if (!block.live) continue;
    if (!table.find(block.address)) return describe(block) + " is gone";
    if (!block.known) continue;
    if (!read(block, bytes)) return describe(block) + " cannot be read";
    if (bytes != block.bytes) return describe(block) + " has other bytes";
  }
  return "";
}

std::string World::describe(const KnownBlock& block) {
  return std::string(block.tag.view()) + " block of " + to_text(block.size) + " on device " +
         std::to_string(block.device);
}

Held held_now() {
  const auto live = SimulatedDriver::instance().live();
  const auto used = std::accumulate(std::begin(live.used_bytes), std::end(live.used_bytes), std::uint64_t{0});
  return {live.physical_handles, live.mappings,           live.reservations,     live.blocks,  live.streams,
          live.contexts,         live.host_registrations, live.host_allocations, live.modules, used};
}

std::ostream& operator<<(std::ostream& out, const Held& held) {
  return out << held.handles << " handles, " << held.mappings << " mappings, " << held.reservations << " reservations, "
             << held.plain_blocks << " plain blocks, " << held.streams << " streams, " << held.contexts << " contexts, "
             << held.registrations << " registrations, " << held.host_allocations << " host allocations, "
             << held.modules << " modules, " << to_text(Bytes{held.used_bytes}) << " used";
}

}  // namespace lowtide::test

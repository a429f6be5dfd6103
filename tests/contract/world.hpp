// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "allocator/backup/backup_stores.hpp"
#include "allocator/backup/file_store.hpp"
#include "allocator/backup/pinned_store.hpp"
#include "allocator/core/transition.hpp"
#include "backends/cuda/vmm_backend.hpp"
#include "backends/portable/recreate_backend.hpp"
#include "tests/contract/simulated_driver.hpp"

namespace lowtide::test {

TagName tag_name(std::string_view text);

/// How a device's memory leaves and comes back in a world.
struct BackendKind {
  const char* name;
  std::unique_ptr<Backend> (*make)(const cuda::Driver& driver, DeviceId device);
  const char* gives_back;  ///< the driver's function after which memory is gone
};
extern const BackendKind vmm_kind;
extern const BackendKind recreate_kind;
extern const std::vector<const BackendKind*> backend_kinds;

/// A program of some blocks whose bytes are known, with the core, a store and a backend below it.
class World {
 public:
  struct KnownBlock {
    DeviceAddress address;
    Bytes size;
    TagName tag;
    std::size_t device;
    std::vector<std::uint8_t> bytes;
    bool known;  ///< the device or the backup must hold `bytes`
    bool live = true;
    AddressRange range() const { return {address, size}; }
  };

  World(const cuda::Driver& driver, std::size_t device_count, BackupSettings backup = {},
        std::unique_ptr<DiskCalls> disk_calls = std::make_unique<DiskCalls>(), const BackendKind& kind = vmm_kind);
  World(const World&) = delete;
  World& operator=(const World&) = delete;
  ~World();

  Backend& backend(std::size_t device = 0) { return *devices[device].backend; }
  ContextId context(std::size_t device = 0) const { return devices[device].context; }
  /// What both stores hold for parked blocks, and host memory kept for the next pause.
  Bytes backup_bytes() const { return store.backup_bytes() + disk.backup_bytes(); }
  Bytes retained_bytes() const { return stores.retained_bytes(); }
  void set_store(const char* tag, Place place) { settings.tags[tag_name(tag)].store = place; }
  void set_paused_access(const char* tag, PausedAccess access) { settings.tags[tag_name(tag)].paused_access = access; }
  void set_action(const char* tag, Action action) { settings.tags[tag_name(tag)].pause = action; }

  Result<TransitionReport> pause(const std::optional<TagName>& tag = {});
  Result<TransitionReport> resume(const std::optional<TagName>& tag = {}) {
    return transitions.resume(tag, settings, {});
  }

  /// A block with random bytes; requires that nothing fails.
  KnownBlock& add(const char* tag, Bytes size, std::size_t device = 0);
  /// The same for a block that the table has already.
  KnownBlock& adopt(DeviceAddress address, const char* tag, Bytes size, std::size_t device = 0);
  void write(KnownBlock& block);
  /// Writes new bytes to the resident blocks whose content was given up.
  void write_unknown();
  void free_all();

  /// "" if every block holds its bytes, on the device or in its backup; else the first that does not. Content that a
  /// pause discarded is noted as unknown.
  std::string complaint();
  /// "" if exactly the blocks for which `parked` is true are parked.
  template <class Predicate>
  std::string wrongly_placed(Predicate parked) {
    for (const auto& block : blocks) {
      if (block.live && is_resident(block) == parked(block)) {
        return describe(block) + (is_resident(block) ? " is resident" : " is parked");
      }
    }
    return "";
  }
  bool is_resident(const KnownBlock& block) const;
  /// What a pause of everything is asked to park.
  bool is_to_be_parked(const KnownBlock& block) const;
  std::size_t parked_blocks() const;

  /// Holds the primary context, so that an error that sticks to it ends with this world.
  struct Device {
    Device(const cuda::Driver& its_driver, int ordinal, const BackendKind& kind);
    Device(const Device&) = delete;
    Device& operator=(const Device&) = delete;
    ~Device();
    const cuda::Driver& driver;
    const int index;
    ContextId context;
    std::unique_ptr<Backend> backend;
  };
  std::deque<Device> devices;  ///< first, since all that follows uses them until its end
  Captures captures;
  PinnedStore store;
  FileStore disk;
  BackupStores stores{store, disk};
  BlockTable table{captures, store.right_of_way()};
  Transitions transitions{table, stores, captures};
  CoreSettings settings;
  std::vector<KnownBlock> blocks;

 private:
  bool discards(const KnownBlock& block) const;
  void note_discarded();
  static std::string describe(const KnownBlock& block);
  bool read(const KnownBlock& block, std::vector<std::uint8_t>& bytes);

  std::uint64_t seed_ = 1;
};

/// What the process has of the simulated devices.
struct Held {
  std::uint64_t handles = 0;
  std::uint64_t mappings = 0;
  std::uint64_t reservations = 0;
  std::uint64_t plain_blocks = 0;
  std::uint64_t streams = 0;
  std::uint64_t contexts = 0;
  std::uint64_t registrations = 0;
  std::uint64_t host_allocations = 0;
  std::uint64_t modules = 0;
  std::uint64_t used_bytes = 0;
  bool operator==(const Held&) const = default;
};
Held held_now();
std::ostream& operator<<(std::ostream& out, const Held& held);

}  // namespace lowtide::test

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <vector>

#include "allocator/core/backend.hpp"
#include "allocator/core/backup_store.hpp"

namespace lowtide {

class Extent;

/// Host memory that takes the place of an extent's device memory while the extent is parked, so that kernels and copies
/// go on reading it at the same address. Bytes move between the two through a scratch address: neither has to leave the
/// extent's address before the copy is done.
///
/// A ladder as the extent's own: one driver call at a time, and a call that fails leaves what was reached, from where
/// the next attempt goes on. The content is in the device memory or in the host memory at any time, mapped or not.
///
/// Not thread-safe: it belongs to whoever set its extent `busy`.
class HostBacking {
 public:
  /// Both outlive it.
  HostBacking(Extent& extent, BackupStore& store) : extent_(extent), store_(store) {}
  HostBacking(const HostBacking&) = delete;
  HostBacking& operator=(const HostBacking&) = delete;

  // A pause. `promise` covers the memory that has yet to be got.
  /// Gets the memory and starts to copy the extent's content there. Nothing runs on the device.
  Status fill(HostPromise& promise);
  /// The copies are done: what was copied is the content as soon as the extent gives up its own memory.
  Status finish_fill();
  /// Puts the memory behind the extent's address, where nothing else is any more.
  Status put_in_place() noexcept;

  // A resume.
  /// Gets device memory and starts to copy the content there.
  Status stage();
  /// The copies are done and nothing runs on the device: the device memory takes the place of the host's.
  Status exchange(std::span<const DeviceId> peers);
  /// The extent is resident: the memory is kept, empty, for the next pause.
  void keep_memory() noexcept { filled_ = false; }
  /// Undoes both. The content was in the host memory all the time.
  void restore() noexcept;

  /// Before the extent gives its own memory back for good.
  Status clear_scratch() noexcept;
  /// Gives everything back. The content, if it is here, is lost.
  Status give_back() noexcept;

  /// Who may read it besides its device, from the next `put_in_place` on; at once if it is in place.
  Status set_peers(std::vector<DeviceId> peers);
  /// For the host, at the extent's address. Puts it there if an earlier attempt failed.
  Result<std::span<std::byte>> bytes() noexcept;

  bool has_memory() const noexcept { return physical_ != PhysicalId{}; }
  bool filled() const noexcept { return filled_; }
  bool in_place() const noexcept { return home_ == Home::readable; }

 private:
  enum class Home : std::uint8_t { away, mapped, readable };

  /// Maps `physical` at the scratch address, for the device.
  Status use_scratch(PhysicalId physical);
  Status leave_home() noexcept;
  AddressRange home() const noexcept;
  Backend& backend() const noexcept;

  Extent& extent_;
  BackupStore& store_;
  std::vector<DeviceId> peers_;
  PhysicalId physical_;   ///< the host memory
  AddressRange scratch_;  ///< reserved, as large as the extent
  bool scratch_used_ = false;
  Home home_ = Home::away;
  bool filled_ = false;
};

/// The content of a parked extent in its HostBacking.
class HostBackedBackup final : public Backup {
 public:
  HostBackedBackup(Extent& extent, BackupStore& store);
  HostBackedBackup(const HostBackedBackup&) = delete;
  HostBackedBackup& operator=(const HostBackedBackup&) = delete;
  ~HostBackedBackup() override;

  Bytes size() const noexcept override { return size_; }
  Status read(Bytes offset, void* host, Bytes size) const override;
  Status write(Bytes offset, const void* host, Bytes size) override;
  Result<std::span<const std::byte>> view(Bytes offset) const override;
  Status begin_load(Backend& backend, DeviceAddress start) override;
  /// Nothing is known of the bytes but that no kernel could write to them.
  Status check_loaded(Backend&, DeviceAddress) const override { return {}; }
  // The extents of such backups keep their layout.
  bool join(std::span<const Neighbour>) override { return false; }
  std::unique_ptr<Backup> split(Bytes) override { return nullptr; }

 private:
  Result<std::span<std::byte>> part(Bytes offset, Bytes size) const;

  Extent& extent_;
  BackupStore& store_;
  const Bytes size_;
};

/// The content of `extent` is back: its host memory is kept for the next pause if the store wants that.
void retire_host_backing(Extent& extent, const BackupStore& store) noexcept;
/// Gives back what `extent` has of host memory, as far as the driver lets it: the rest stays on the extent's books.
void drop_host_backing(Extent& extent) noexcept;

}  // namespace lowtide

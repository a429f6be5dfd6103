// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "allocator/core/backend.hpp"
#include "allocator/core/report.hpp"

namespace lowtide {

/// The content of one extent, somewhere else. Destroying it drops the bytes. Offsets are those in the extent. One call
/// at a time.
class Backup {
 public:
  virtual ~Backup() = default;
  /// The bytes it holds.
  virtual Bytes size() const noexcept = 0;
  /// Code::invalid if a byte of the range was not saved.
  virtual Status read(Bytes offset, void* host, Bytes size) const = 0;
  virtual Status write(Bytes offset, const void* host, Bytes size) = 0;
  /// The bytes from `offset` on as they lie in host memory, as far as they lie in one piece; valid while they are held
  /// and not written. Code::invalid if the byte was not saved, Code::unsupported if it is not in host memory.
  virtual Result<std::span<const std::byte>> view(Bytes) const {
    return fail(Code::unsupported, "this backup is not in host memory: read it");
  }
  /// Starts to copy everything to the extent at `start`; done after `backend.finish_copies()`.
  virtual Status begin_load(Backend& backend, DeviceAddress start) = 0;
  /// After a load: Code::corrupt if the device does not hold what was saved, as far as this is known.
  virtual Status check_loaded(Backend& backend, DeviceAddress start) const = 0;

  struct Neighbour {
    Backup* backup;
    Bytes offset;  ///< where its extent begins in this one's, which grows
  };
  /// Takes over what others hold, whose extents become part of this one's. False, and nothing changed, if they are not
  /// all of this kind. May throw std::bad_alloc, and then nothing changed.
  virtual bool join(std::span<const Neighbour> others) = 0;
  /// Gives away what it holds from `offset` on, where an extent of its own is to begin. May throw std::bad_alloc, and
  /// then nothing changed.
  virtual std::unique_ptr<Backup> split(Bytes offset) = 0;
};

/// One extent to be copied out.
struct SaveRequest {
  Backend* backend;
  DeviceAddress start;                ///< of the extent
  std::vector<AddressRange> content;  ///< what of it is to be saved, in order
  /// In: an older copy of the content that may be out of date, or null. Out: the backup.
  std::unique_ptr<Backup> backup;
  Place place = Place::host;  ///< where to, if there is a choice
};

/// Host memory that was promised and is not all taken yet. Its end gives up the rest.
class HostPromise {
 public:
  virtual ~HostPromise() = default;
  /// `size` of it is the process's now. At most what was promised.
  virtual void taken(Bytes size) noexcept = 0;
};

/// Where parked bytes live. The core says what is copied, the store says where to and in which order; it sees all
/// extents of a transition at once, so that it can copy one while it gets memory for the next.
/// One transition at a time calls save; the rest is thread-safe.
class BackupStore {
 public:
  virtual ~BackupStore() = default;

  /// Copies all content out, all or none: after an error no request has a backup, except that a refusal before the
  /// first copy leaves the older ones. Copies that the driver did not let end may then still write to host memory,
  /// which the store keeps for them, and read the ranges. Code::host_budget, with the numbers, if there is no room.
  virtual Status save(std::span<SaveRequest> requests, const ProgressSink& progress) = 0;
  /// The extent of `backup` is resident again. What is kept of it, so that the next pause copies only what changed
  /// since; null if that is nothing, or if it is another store's.
  virtual std::unique_ptr<Backup> retain(std::unique_ptr<Backup> backup) = 0;
  /// Gives back what is kept for a later pause, as far as no backup lies in it.
  virtual void trim() = 0;

  // Host memory that the core itself gets from the driver, and keeps backups in: a part of the same budget.
  /// Code::host_budget, with the numbers, if there is no room.
  virtual Result<std::unique_ptr<HostPromise>> promise_host(Bytes) {
    return fail(Code::unsupported, "this store has no host memory");
  }
  /// `size` of what was taken went back to the driver.
  virtual void host_given_back(Bytes) noexcept {}
  /// Whether such memory is kept for the next pause once its extent is resident again.
  virtual bool retains_host() const noexcept { return false; }
  /// A backup of `size` lies in such memory, or does no longer.
  virtual void count_host_backed(Bytes, bool) noexcept {}

  /// Bytes of backups of parked content, and host bytes kept for the next pause.
  virtual Bytes backup_bytes() const noexcept = 0;
  virtual Bytes retained_bytes() const noexcept = 0;
};

}  // namespace lowtide

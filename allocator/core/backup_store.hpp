// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>

#include "allocator/core/backend.hpp"
#include "allocator/core/report.hpp"

namespace lowtide {

/// The bytes of one parked extent. Destroying it drops them.
class Backup {
 public:
  virtual ~Backup() = default;
  virtual Bytes size() const noexcept = 0;
  /// `offset + size` is at most size().
  virtual Status read(Bytes offset, void* host, Bytes size) const = 0;
  virtual Status write(Bytes offset, const void* host, Bytes size) = 0;
};

/// One extent to be copied out. `backup` is filled in by the store.
struct SaveRequest {
  Backend* backend;
  AddressRange range;
  std::unique_ptr<Backup> backup;
};

/// Where parked bytes live. The core says what is copied, the store says where to and in which order; it sees all
/// extents of a transition at once, so that it can copy one while it gets memory for the next.
/// One transition at a time calls save and load; the rest is thread-safe.
class BackupStore {
 public:
  virtual ~BackupStore() = default;

  /// Copies every range out, all or none: after an error no request has a backup. Copies that the driver did not let
  /// end may then still write to host memory, which the store keeps for them, and read the ranges. Code::host_budget,
  /// with the numbers, if the host has no room.
  virtual Status save(std::span<SaveRequest> requests, const ProgressSink& progress) = 0;
  /// Starts to copy `backup` to `range`, which has its size; done after `backend.finish_copies()`.
  virtual Status begin_load(Backend& backend, AddressRange range, const Backup& backup) = 0;

  /// Host bytes that hold backups, and host bytes kept for the next pause.
  virtual Bytes backup_bytes() const noexcept = 0;
  virtual Bytes retained_bytes() const noexcept = 0;
};

}  // namespace lowtide

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/core/backup_store.hpp"

namespace lowtide {

/// The stores of a process as one: each extent is saved where its tag wants it.
class BackupStores final : public BackupStore {
 public:
  /// Both outlive it.
  BackupStores(BackupStore& host, BackupStore& disk) : host_(host), disk_(disk) {}

  /// All or none over both. What was copied to host memory before the disk failed is kept as after a resume.
  Status save(std::span<SaveRequest> requests, const ProgressSink& progress) override;
  std::unique_ptr<Backup> retain(std::unique_ptr<Backup> backup) override;
  void trim() override;
  Result<std::unique_ptr<HostPromise>> promise_host(Bytes need) override { return host_.promise_host(need); }
  void host_given_back(Bytes size) noexcept override { host_.host_given_back(size); }
  bool retains_host() const noexcept override { return host_.retains_host(); }
  void count_host_backed(Bytes size, bool parked) noexcept override { host_.count_host_backed(size, parked); }
  /// Of host memory.
  Bytes backup_bytes() const noexcept override { return host_.backup_bytes(); }
  Bytes retained_bytes() const noexcept override { return host_.retained_bytes() + disk_.retained_bytes(); }

 private:
  Status save_each(std::span<SaveRequest> host, std::span<SaveRequest> disk, const ProgressSink& progress);

  BackupStore& host_;
  BackupStore& disk_;
};

}  // namespace lowtide

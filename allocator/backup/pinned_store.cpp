// SPDX-License-Identifier: Apache-2.0
#include "allocator/backup/pinned_store.hpp"

#include <algorithm>
#include <utility>

#include "allocator/backup/pinned_backup.hpp"
#include "allocator/backup/pinned_save.hpp"
#include "allocator/base/log.hpp"

namespace lowtide {

Status PinnedStore::save(std::span<SaveRequest> requests, const ProgressSink& progress) {
  PinnedSave save(*this, requests, progress);
  Status result;
  try {
    if (auto status = save.plan(); !status) return status;
    result = save.copy();
  } catch (const std::bad_alloc&) {
    result = no_bookkeeping_memory();
  }
  in_doubt_ = !save.finish(result);  // whatever happened: copies may be in flight to memory that would go
  if (!result) {
    for (auto& request : requests) request.backup.reset();
  }
  release_empty();
  return result;
}

std::unique_ptr<Backup> PinnedStore::retain(std::unique_ptr<Backup> backup) {
  auto* pinned = dynamic_cast<PinnedBackup*>(backup.get());
  if (pinned == nullptr || settings().retain == BackupSettings::Retain::none) return nullptr;
  const auto is_known = [](const PinnedPage& page) { return page.state == PinnedPage::Digest::known; };
  // Without digests nothing can be said of the bytes: only the memory is kept.
  if (std::none_of(pinned->pages().begin(), pinned->pages().end(), is_known)) return nullptr;
  pinned->set_parked(false);
  return backup;
}

void PinnedStore::trim() { release_empty(); }

void PinnedStore::release_if_none_is_kept() noexcept {
  if (settings().retain == BackupSettings::Retain::none) release_empty();
}

void PinnedStore::release_empty() noexcept {
  if (!in_doubt_) arena_.release_empty();
}

Bytes PinnedStore::retained_bytes() const noexcept {
  const Bytes size = arena_.size() + Bytes{outside_.load(std::memory_order_relaxed)};
  const Bytes parked = backup_bytes();
  return size > parked ? size - parked : Bytes{};
}

namespace {

class BudgetPromise final : public HostPromise {
 public:
  BudgetPromise(HostReservation reservation, std::atomic<std::uint64_t>& taken)
      : reservation_(std::move(reservation)), taken_(taken) {}
  void taken(Bytes size) noexcept override {
    reservation_.touched(size);
    taken_.fetch_add(size.value, std::memory_order_relaxed);
  }

 private:
  HostReservation reservation_;
  std::atomic<std::uint64_t>& taken_;
};

}  // namespace

Result<std::unique_ptr<HostPromise>> PinnedStore::promise_host(Bytes need) {
  auto reservation = budget_.reserve(need);
  if (!reservation) return fail(reservation.error());
  return std::make_unique<BudgetPromise>(std::move(*reservation), outside_);
}

void PinnedStore::host_given_back(Bytes size) noexcept {
  outside_.fetch_sub(size.value, std::memory_order_relaxed);
  budget_.release_held(size);
}

void PinnedStore::tell_of_slow_copies() noexcept {
  if (std::exchange(told_of_slow_copies_, true)) return;
  log(LogLevel::warning, "the driver does not register host memory here: copies run at a tenth of the link's speed");
}

void PinnedStore::count_parked(Bytes size, bool parked) noexcept {
  if (parked)
    parked_.fetch_add(size.value, std::memory_order_relaxed);
  else
    parked_.fetch_sub(size.value, std::memory_order_relaxed);
}

void PinnedStore::set_settings(BackupSettings settings) {
  budget_.set_budget(settings.budget);
  const std::lock_guard lock(mutex_);
  settings_ = settings;
}

BackupSettings PinnedStore::settings() const {
  const std::lock_guard lock(mutex_);
  return settings_;
}

}  // namespace lowtide

// SPDX-License-Identifier: Apache-2.0
#include "allocator/core/transition.hpp"

#include <algorithm>
#include <thread>

#include "allocator/core/transition_devices.hpp"

namespace lowtide {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::uint8_t poison_byte = 0xcd;
constexpr std::chrono::milliseconds room_check_interval{10};

TagSettings settings_of(const CoreSettings& settings, const Extent& extent) {
  const auto found = settings.tags.find(extent.region.tag);
  return found == settings.tags.end() ? TagSettings{} : found->second;
}

/// What a pause may find to do: resident content, or memory that an earlier attempt could not give back.
bool may_be_paused(const Extent& extent) { return extent.holds_memory(); }
/// What a resume may find to do: parked content, or the backup that an earlier pause left with an extent that stayed.
bool may_be_resumed(const Extent& extent) {
  return extent.blocks > 0 && (!extent.resident || extent.backup != nullptr);
}

Status refuse_shared(std::span<Extent* const> extents) {
  for (const Extent* extent : extents) {
    if (extent->shared_by == nullptr) continue;
    return fail(Error::format(Code::refused,
                              "a block of %s (tag %s, device %d) was given to others by %s: its memory would not come "
                              "free. Nothing changed",
                              to_text(extent->requested).c_str(), extent->region.tag.c_str(),
                              index_of(extent->region.backend.device()), extent->shared_by));
  }
  return {};
}

/// The saved copies, in the order of `extents`; null for what is not offloaded.
Status save(BackupStore& store, const CoreSettings& settings, std::span<Extent* const> extents,
            const ProgressSink& progress) {
  std::vector<SaveRequest> requests;
  std::vector<Extent*> saved;
  for (Extent* extent : extents) {
    const bool garbage = extent->blocks == 0 || !extent->resident;
    if (garbage || settings_of(settings, *extent).pause != Action::offload) continue;
    requests.push_back({&extent->region.backend, extent->range(), std::move(extent->backup)});
    saved.push_back(extent);
  }
  auto status = store.save(requests, progress);
  for (std::size_t i = 0; i < saved.size(); ++i) saved[i]->backup = std::move(requests[i].backup);
  return status;
}

void count_paused(TransitionReport& report, const Extent& extent) {
  (extent.backup ? report.parked : report.discarded) += extent.requested;
  report.blocks += extent.blocks;
}

/// Takes the memory away. Until the first unmap succeeds a failure changes nothing and drops the backups.
Status give_back_memory(std::span<Extent* const> extents, TransitionReport& report) {
  Status result;
  bool committed = false;
  for (Extent* extent : extents) {
    auto status = extent->descend(extent->region.backend);
    if (!status && result) result = status;
    if (extent->mapped()) {
      if (committed) continue;  // stays resident, with its backup
      for (Extent* other : extents) {
        if (other->resident) other->backup.reset();
      }
      return result;
    }
    committed = true;
    if (!extent->resident) continue;  // an earlier pause parked it; only its memory was left
    extent->resident = false;
    count_paused(report, *extent);
  }
  return result;
}

/// Memory, access and content for one extent; the content is there after finish_copies.
Status bring_back(Extent& extent, BackupStore& store, std::span<const DeviceId> peers, Fill fill) {
  Backend& backend = extent.region.backend;
  if (auto status = extent.climb(backend, peers); !status) return status;
  if (extent.backup) return store.begin_load(backend, extent.range(), *extent.backup);
  if (fill == Fill::none) return {};
  return backend.fill(extent.range(), fill == Fill::zero ? std::uint8_t{0} : poison_byte);
}

/// Gives back what a resume that fails had already got.
class Rollback {
 public:
  Rollback(std::span<Extent* const> extents, TransitionDevices& devices) : extents_(extents), devices_(devices) {}
  Rollback(const Rollback&) = delete;
  Rollback& operator=(const Rollback&) = delete;
  ~Rollback() {
    if (!armed_) return;
    if (!devices_.finish_copies()) return;  // a copy may be in flight towards memory that would go
    for (Extent* extent : extents_) {
      // What the driver will not take back now, the next pause or resume goes on with.
      if (!extent->resident) (void)extent->descend(extent->region.backend);
    }
  }
  void disarm() { armed_ = false; }

 private:
  std::span<Extent* const> extents_;
  TransitionDevices& devices_;
  bool armed_ = true;
};

}  // namespace

Result<TransitionReport> Transitions::pause(const std::optional<TagName>& tag, const CoreSettings& settings,
                                            const ProgressSink& progress) {
  const std::lock_guard lock(mutex_);
  const auto start = Clock::now();
  const auto no_captures = captures_.block();
  if (!no_captures) return fail(no_captures.error());

  TransitionReport report;
  auto claim = table_.claim(tag, may_be_paused);
  std::vector<Extent*> extents;
  for (Extent* extent : claim.extents) {
    const bool keep = extent->blocks > 0 && extent->resident && settings_of(settings, *extent).pause == Action::keep;
    if (keep)
      report.kept += extent->requested;
    else
      extents.push_back(extent);
  }
  if (auto status = refuse_shared(extents); !status) return fail(status.error());

  TransitionDevices devices(extents);
  devices.note_before();
  if (auto status = devices.synchronise(); !status) return fail(status.error());
  if (auto status = save(store_, settings, extents, progress); !status) return fail(status.error());
  if (auto status = give_back_memory(extents, report); !status) return fail(status.error());
  report.devices = devices.reports();
  report.time = Clock::now() - start;
  return report;
}

Result<TransitionReport> Transitions::resume(const std::optional<TagName>& tag, const CoreSettings& settings,
                                             const ProgressSink& progress) {
  const auto deadline = Clock::now() + settings.device_wait;
  for (;;) {
    const bool last_try = Clock::now() >= deadline;
    auto report = resume_once(tag, settings, progress);
    if (report || report.error().code() != Code::device_memory || last_try) return report;
    std::this_thread::sleep_for(room_check_interval);
  }
}

Result<TransitionReport> Transitions::resume_once(const std::optional<TagName>& tag, const CoreSettings& settings,
                                                  const ProgressSink& progress) {
  const std::lock_guard lock(mutex_);
  const auto start = Clock::now();
  // A capture that is under way does not mind a resume; a new one waits.
  const auto no_new_captures = captures_.block();
  TransitionReport report;
  auto claim = table_.claim(tag, may_be_resumed);
  auto& extents = claim.extents;
  // Backed content first: its host memory is free again before the discarded rest asks for anything.
  std::stable_partition(extents.begin(), extents.end(), [](const Extent* extent) { return extent->backup != nullptr; });

  TransitionDevices devices(extents);
  devices.note_before();
  if (auto status = devices.has_room(extents); !status) return fail(status.error());
  Rollback rollback(extents, devices);
  Progress copied;
  for (const Extent* extent : extents) copied.total += extent->backup ? extent->backup->size() : Bytes{};
  for (Extent* extent : extents) {
    if (extent->resident) continue;
    const auto peers = table_.peers_of(extent->region.backend.device());
    const Fill fill = settings_of(settings, *extent).fill;
    if (auto status = bring_back(*extent, store_, peers, fill); !status) return fail(status.error());
    if (!extent->backup) continue;
    copied.done += extent->backup->size();
    if (progress) progress(copied);
  }
  if (auto status = devices.finish_copies(); !status) return fail(status.error());
  rollback.disarm();
  for (Extent* extent : extents) {
    if (!extent->resident) count_paused(report, *extent);
    extent->resident = true;
    extent->backup.reset();
  }
  report.devices = devices.reports();
  report.time = Clock::now() - start;
  return report;
}

}  // namespace lowtide

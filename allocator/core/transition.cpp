// SPDX-License-Identifier: Apache-2.0
#include "allocator/core/transition.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include "allocator/base/log.hpp"
#include "allocator/core/coverage.hpp"
#include "allocator/core/host_move.hpp"
#include "allocator/core/neighbours.hpp"
#include "allocator/core/observed_copy.hpp"
#include "allocator/core/transition_admission.hpp"
#include "allocator/core/transition_devices.hpp"
#include "allocator/core/transition_turn.hpp"

namespace lowtide {
namespace {

using Clock = std::chrono::steady_clock;
constexpr RunLimit unmapped_at_once{64, Bytes{~0ull}};
/// What a pause may find to do: resident content, or memory that an earlier attempt could not give back or put in
/// place.
bool may_be_paused(const Extent& extent) {
  if (extent.holds_memory()) return true;
  return extent.host && (extent.blocks == 0 || !extent.host->filled() || !extent.host->in_place());
}
/// Those that give their memory back; what stays is counted.
std::vector<Extent*> without_kept(std::span<Extent* const> all, const CoreSettings& settings,
                                  TransitionReport& report) {
  std::vector<Extent*> extents;
  for (Extent* extent : all) {
    const bool keeps =
        settings_of(settings, *extent).pause == Action::keep || !extent->region.backend.capabilities().gives_back;
    if (keeps && extent->blocks > 0 && extent->resident)
      report.kept += extent->requested;
    else
      extents.push_back(extent);
  }
  return extents;
}

/// Memory whose blocks were freed, and that could not be given back then, is nobody's to be kept.
Status refuse_shared(std::span<Extent* const> extents) {
  for (const Extent* extent : extents) {
    if (extent->shared_by == nullptr || extent->blocks == 0) continue;
    return fail(Error::format(Code::refused,
                              "a block of %s (tag %s, device %d) was given to others by %s: its memory would not come "
                              "free. Nothing changed",
                              to_text(extent->requested).c_str(), extent->region.label.tag.c_str(),
                              index_of(extent->region.backend.device()), extent->shared_by));
  }
  return {};
}

/// What of an extent is copied if its tag says so.
std::vector<AddressRange> content_of(const BlockTable& table, const CoreSettings& settings, const Extent& extent) {
  return table.content_of(extent, copies_stale(table, settings, extent));
}

/// What is offloaded to host memory in which it can be read. Where the device cannot, it is saved as any other: `told`
/// says so once.
std::vector<Extent*> to_be_moved(const BlockTable& table, const CoreSettings& settings,
                                 std::span<Extent* const> extents, bool& told) {
  std::vector<Extent*> moved;
  Backend* asked = nullptr;  // a device that cannot tries it anew each time
  bool can = false;
  for (Extent* extent : extents) {
    const TagSettings tag = settings_of(settings, *extent);
    const bool content = extent->blocks > 0 && extent->resident && tag.pause == Action::offload;
    if (!content || tag.paused_access == PausedAccess::fault || content_of(table, settings, *extent).empty()) continue;
    if (asked != &extent->region.backend) {
      asked = &extent->region.backend;
      can = asked->has_host_backing();
    }
    if (can) {
      moved.push_back(extent);
    } else if (!std::exchange(told, true)) {
      log(LogLevel::warning,
          "tag %s: paused_access = host is not possible on device %d (%s): its parked blocks cannot be read by kernels",
          extent->region.label.tag.c_str(), index_of(extent->region.backend.device()),
          extent->region.backend.device_name().c_str());
    }
  }
  return moved;
}

/// What a pause works with.
struct Job {
  BlockTable& table;
  BackupStore& store;
  const CoreSettings& settings;
  TransitionReport& report;
  std::set<const Extent*> held_back;  ///< whose `held_back` is of this pause
};

/// What is copied out of an extent, and whether the copy is for the end of an update instead of the resume.
struct Copied {
  std::vector<AddressRange> content;
  bool held_back = false;
};
Copied to_be_copied(const Job& job, const Extent& extent) {
  const TagSettings tag = settings_of(job.settings, extent);
  if (extent.blocks == 0 || !extent.resident) return {};
  if (tag.pause == Action::offload) return {content_of(job.table, job.settings, extent)};
  const bool learns = tag.coverage == Coverage::learn && tag.content == Content::persistent;
  if (!learns) return {};
  // One that waits for its update has a copy held back already; what became valid in it since comes back as it is.
  if (extent.held_back) return {job.table.content_of(extent, false)};
  return {job.table.content_to_hold_back(extent), true};
}

/// Copies out what is kept; `extents` then have their copies.
Status save(Job& job, std::span<Extent* const> extents, const ProgressSink& progress) {
  std::vector<SaveRequest> requests;
  std::vector<std::pair<Extent*, bool>> saved;
  for (Extent* extent : extents) {
    auto [content, held_back] = to_be_copied(job, *extent);
    const bool garbage = extent->blocks == 0 || !extent->resident;
    const bool backed = !held_back && !content.empty();
    const Place place = settings_of(job.settings, *extent).store;
    // What an earlier pause left with an extent that stayed is out of date: no resume may load it.
    if (!garbage && !backed) extent->backup.reset();
    // What a resume kept of it is of use to a host backup only, and would take up its memory meanwhile.
    if (!backed || place != Place::host || is_moved(*extent)) extent->retained.reset();
    if (garbage || content.empty() || is_moved(*extent)) continue;
    saved.emplace_back(extent, held_back);
    requests.push_back({&extent->region.backend, extent->range().start, std::move(content), nullptr, place});
  }
  for (std::size_t i = 0; i < saved.size(); ++i) {
    const auto& [extent, held_back] = saved[i];
    // One that an earlier pause left with an extent that stayed is as good as one that a resume left.
    if (!held_back) requests[i].backup = std::move(extent->backup ? extent->backup : extent->retained);
    if (held_back) job.held_back.insert(extent);
  }
  auto status = job.store.save(requests, progress);
  for (std::size_t i = 0; i < saved.size(); ++i) {
    const auto& [extent, held_back] = saved[i];
    if (held_back)
      extent->held_back = std::move(requests[i].backup);
    else
      (status ? extent->backup : extent->retained) = std::move(requests[i].backup);
  }
  return status;
}

/// The memory of a resident extent is gone.
void count_as_parked(Job& job, Extent& extent) {
  const TagSettings tag = settings_of(job.settings, extent);
  const bool all = tag.pause == Action::offload && copies_stale(job.table, job.settings, extent);
  const bool holds_back = job.held_back.erase(&extent) > 0;
  const Bytes copied = job.table.note_parked(extent, {all, holds_back, is_covered(job.settings, extent), tag.content});
  extent.resident = false;
  extent.retained.reset();  // of what is discarded
  count(job.report, extent, copied);
}

/// Takes the memory away from neighbours. False if the pause is over: nothing was committed and one could not be
/// unmapped.
bool give_back_run(Job& job, std::span<Extent* const> run, bool& committed, Status& result) {
  Extent::unmap(run, run.front()->region.backend);
  for (Extent* extent : run) {
    auto status = extent->host ? extent->host->clear_scratch() : Status();
    if (status) status = job.table.park(*extent);
    if (!status && result) result = status;
    if (extent->mapped()) {
      if (!committed) return false;
      continue;  // stays resident, with its backup
    }
    committed = true;
    // Else an earlier pause parked it; only its memory was left.
    if (extent->resident) count_as_parked(job, *extent);
    settle_parked(*extent);
  }
  return true;
}

/// Takes the memory away. Until the first unmap succeeds a failure changes nothing: the backups are out of date again.
Status give_back_memory(Job& job, std::span<Extent* const> extents) {
  Status result;
  bool committed = false;
  (void)for_each_run(extents, unmapped_at_once, [&](std::span<Extent* const> run) -> Status {
    if (give_back_run(job, run, committed, result)) return {};
    for (Extent* extent : extents) {
      if (extent->resident) extent->retained = job.store.retain(std::move(extent->backup));
    }
    return result;
  });
  // Of what stayed resident all is valid, and the program writes on.
  for (Extent* extent : extents) {
    if (job.held_back.contains(extent)) extent->held_back.reset();
  }
  return result;
}

}  // namespace

std::optional<RunningTransition> Transitions::running() const {
  const std::lock_guard lock(running_mutex_);
  return running_;
}

Result<TransitionReport> Transitions::pause(const std::optional<TagName>& tag, const CoreSettings& settings,
                                            const ProgressSink& progress) {
  return try_for(settings, [&] { return pause_once(tag, settings, progress); });
}

Result<TransitionReport> Transitions::pause_once(const std::optional<TagName>& tag, const CoreSettings& settings,
                                                 const ProgressSink& progress) {
  const Turn turn(*this, "pause", progress);
  const auto start = Clock::now();
  const auto no_captures = captures_.block();
  if (!no_captures) return fail(no_captures.error());

  TransitionReport report;
  AdmittedTransition admitted(admission_, table_);
  auto claim = table_.claim(tag, may_be_paused);
  const auto extents = without_kept(claim.extents, settings, report);
  if (auto status = refuse_shared(extents); !status) return fail(status.error());
  if (auto status = refuse_updates(table_, extents, "pause"); !status) return fail(status.error());
  const auto plan = plan_of(TransitionPlan::Step::pause, tag, extents, [&](const Extent& extent) {
    return extent.resident && settings_of(settings, extent).pause == Action::discard;
  });
  if (auto status = admitted.ask(plan); !status) return fail(status.error());

  TransitionDevices devices(extents);
  devices.note_before();
  {
    const ObservedWait wait(observer_, Observer::Wait::drain);
    if (auto status = devices.synchronise(); !status) return fail(status.error());
  }
  auto status = park(extents, devices, settings, turn.sink(), report);
  // What is kept for later pauses must not stand in the way of this one: that of others, then its own.
  if (!status && status.error().code() == Code::host_budget && drop_retained())
    status = park(extents, devices, settings, turn.sink(), report);
  if (!status && status.error().code() == Code::host_budget && drop_retained(extents))
    status = park(extents, devices, settings, turn.sink(), report);
  if (!status) return fail(status.error());
  admitted.done();
  report.devices = devices.reports();
  report.time = Clock::now() - start;
  return report;
}

Status Transitions::park(std::span<Extent* const> extents, TransitionDevices& devices, const CoreSettings& settings,
                         const ProgressSink& progress, TransitionReport& report) {
  const auto moved = to_be_moved(table_, settings, extents, told_of_no_host_backing_);
  const ObservedCopy copy(observer_, Observer::Copy::out);
  HostMove move(moved, store_, devices);
  if (auto status = move.copy(table_); !status) return status;
  Job job{table_, store_, settings, report, {}};
  if (auto status = save(job, extents, progress); !status) return status;
  copy.done(extents, [](const Extent& extent) { return extent.resident ? copied_of(extent) : Bytes{}; });
  return give_back_memory(job, extents);
}

}  // namespace lowtide

// SPDX-License-Identifier: Apache-2.0
#include "allocator/core/transition.hpp"

#include <algorithm>
#include <thread>

#include "allocator/base/log.hpp"
#include "allocator/core/host_move.hpp"
#include "allocator/core/neighbours.hpp"
#include "allocator/core/transition_devices.hpp"

namespace lowtide {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::uint8_t poison_byte = 0xcd;
constexpr std::chrono::milliseconds room_check_interval{10};
constexpr RunLimit unmapped_at_once{64, Bytes{~0ull}};
/// Less than for an unmap: the copies of a run begin when it is mapped.
constexpr RunLimit mapped_at_once{64, 64_MiB};

TagSettings settings_of(const CoreSettings& settings, const Extent& extent) { return settings.of(extent.region.label); }

/// What a pause may find to do: resident content, or memory that an earlier attempt could not give back or put in
/// place.
bool may_be_paused(const Extent& extent) {
  if (extent.holds_memory()) return true;
  return extent.host && (extent.blocks == 0 || !extent.host->filled() || !extent.host->in_place());
}
/// What a resume may find to do: parked content, or what an earlier attempt left with an extent that is resident.
bool may_be_resumed(const Extent& extent) {
  return extent.blocks > 0 && (!extent.resident || extent.backup != nullptr || extent.host != nullptr);
}

Status refuse_shared(std::span<Extent* const> extents) {
  for (const Extent* extent : extents) {
    if (extent->shared_by == nullptr) continue;
    return fail(Error::format(Code::refused,
                              "a block of %s (tag %s, device %d) was given to others by %s: its memory would not come "
                              "free. Nothing changed",
                              to_text(extent->requested).c_str(), extent->region.label.tag.c_str(),
                              index_of(extent->region.backend.device()), extent->shared_by));
  }
  return {};
}

bool is_moved(const Extent& extent) { return extent.host && extent.host->filled(); }

/// What is offloaded to host memory in which it can be read. Where the device cannot, it is saved as any other: `told`
/// says so once.
std::vector<Extent*> to_be_moved(const CoreSettings& settings, std::span<Extent* const> extents, bool& told) {
  std::vector<Extent*> moved;
  Backend* asked = nullptr;  // a device that cannot tries it anew each time
  bool can = false;
  for (Extent* extent : extents) {
    const TagSettings tag = settings_of(settings, *extent);
    const bool content = extent->blocks > 0 && extent->resident && tag.pause == Action::offload;
    if (!content || tag.paused_access == PausedAccess::fault) continue;
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

/// Copies out what is offloaded; `extents` then have their backups.
Status save(BlockTable& table, BackupStore& store, const CoreSettings& settings, std::span<Extent* const> extents,
            const ProgressSink& progress) {
  std::vector<SaveRequest> requests;
  std::vector<Extent*> saved;
  for (Extent* extent : extents) {
    const bool garbage = extent->blocks == 0 || !extent->resident;
    const TagSettings tag = settings_of(settings, *extent);
    const bool offload = tag.pause == Action::offload;
    // What an earlier pause left with an extent that stayed is out of date: no resume may load it.
    if (!garbage && !offload) extent->backup.reset();
    // What a resume kept of it is of use to a host backup only, and would take up its memory meanwhile.
    if (!offload || tag.store != Place::host || is_moved(*extent)) extent->retained.reset();
    if (garbage || !offload || is_moved(*extent)) continue;
    saved.push_back(extent);
    requests.push_back({&extent->region.backend, extent->range().start, table.content_of(*extent), nullptr, tag.store});
  }
  for (std::size_t i = 0; i < saved.size(); ++i) {
    // One that an earlier pause left with an extent that stayed is as good as one that a resume left.
    requests[i].backup = std::move(saved[i]->backup ? saved[i]->backup : saved[i]->retained);
  }
  auto status = store.save(requests, progress);
  for (std::size_t i = 0; i < saved.size(); ++i) {
    (status ? saved[i]->backup : saved[i]->retained) = std::move(requests[i].backup);
  }
  return status;
}

void count_paused(TransitionReport& report, const Extent& extent) {
  (extent.backup ? report.parked : report.discarded) += extent.requested;
  report.blocks += extent.blocks;
}

/// Takes the memory away from neighbours. False if the pause is over: nothing was committed and one could not be
/// unmapped.
bool give_back_run(std::span<Extent* const> run, bool& committed, Status& result, TransitionReport& report) {
  Extent::unmap(run, run.front()->region.backend);
  for (Extent* extent : run) {
    auto status = extent->host ? extent->host->clear_scratch() : Status();
    if (status) status = extent->descend(extent->region.backend);
    if (!status && result) result = status;
    if (extent->mapped()) {
      if (!committed) return false;
      continue;  // stays resident, with its backup
    }
    committed = true;
    if (extent->resident) {
      extent->resident = false;
      extent->retained.reset();  // of what is discarded
      count_paused(report, *extent);
    }  // else an earlier pause parked it; only its memory was left
    settle_parked(*extent);
  }
  return true;
}

/// Takes the memory away. Until the first unmap succeeds a failure changes nothing: the backups are out of date again.
Status give_back_memory(std::span<Extent* const> extents, BackupStore& store, TransitionReport& report) {
  Status result;
  bool committed = false;
  (void)for_each_run(extents, unmapped_at_once, [&](std::span<Extent* const> run) -> Status {
    if (give_back_run(run, committed, result, report)) return {};
    for (Extent* extent : extents) {
      if (extent->resident) extent->retained = store.retain(std::move(extent->backup));
    }
    return result;
  });
  return result;
}

/// Memory, access and content for neighbours; the content is there after finish_copies.
Status bring_back(std::span<Extent* const> run, std::span<const DeviceId> peers, Fill fill) {
  Backend& backend = run.front()->region.backend;
  for (Extent* extent : run) {
    if (auto status = extent->climb_to_mapped(backend); !status) return status;
  }
  if (auto status = Extent::set_access(run, backend, peers); !status) return status;
  for (Extent* extent : run) {
    Status status;
    if (extent->backup)
      status = extent->backup->begin_load(backend, extent->range().start);
    else if (fill != Fill::none)
      status = backend.fill(extent->range(), fill == Fill::zero ? std::uint8_t{0} : poison_byte);
    if (!status) return status;
  }
  return {};
}

Status check_loaded(std::span<Extent* const> extents) {
  for (const Extent* extent : extents) {
    if (extent->resident || !extent->backup) continue;
    if (auto status = extent->backup->check_loaded(extent->region.backend, extent->range().start); !status) {
      return status;
    }
  }
  return {};
}

/// Told of what was started, tells of what is done.
class CopyProgress {
 public:
  CopyProgress(std::span<Extent* const> extents, const ProgressSink& sink) : sink_(sink) {
    for (const Extent* extent : extents) progress_.total += backup_of(*extent);
  }
  /// The copies of `run` were started. Waits while more is in flight than keeps the link busy.
  Status started(std::span<Extent* const> run) {
    for (const Extent* extent : run) started_ += backup_of(*extent);
    if (!sink_ || started_ - progress_.done < in_flight_when_told + in_flight_when_told) return {};
    if (auto status = run.front()->region.backend.limit_copies(in_flight_when_told); !status) return status;
    tell(started_ - in_flight_when_told);
    return {};
  }
  void finished() {
    if (sink_ && progress_.total.value > 0) tell(progress_.total);
  }

 private:
  static Bytes backup_of(const Extent& extent) { return extent.backup ? extent.backup->size() : Bytes{}; }
  void tell(Bytes done) {
    progress_.done = done;
    sink_(progress_);
  }

  const ProgressSink& sink_;
  Progress progress_;
  Bytes started_;
};

/// The copies of one run go on while the next gets its memory.
Status bring_back(BlockTable& table, const CoreSettings& settings, std::span<Extent* const> parked,
                  CopyProgress& copied) {
  return for_each_run(parked, mapped_at_once, [&](std::span<Extent* const> run) -> Status {
    const auto peers = table.peers_of(run.front()->region.backend.device());
    if (auto status = bring_back(run, peers, settings_of(settings, *run.front()).fill); !status) return status;
    return copied.started(run);
  });
}

/// All parked ones of `extents`: their content is back, but nothing is dropped yet.
Status bring_back(BlockTable& table, const CoreSettings& settings, std::span<Extent* const> extents,
                  TransitionDevices& devices, CopyProgress& copied) {
  std::vector<Extent*> parked;
  std::vector<Extent*> moved;
  for (Extent* extent : extents) {
    if (!extent->resident) (is_moved(*extent) ? moved : parked).push_back(extent);
  }
  auto status = bring_back(table, settings, parked, copied);
  if (status) status = stage_moved(moved);
  if (status) status = devices.finish_copies();
  if (status) status = check_loaded(parked);
  // Kernels may have been reading what leaves its address now.
  if (status && !moved.empty()) status = devices.synchronise();
  return status ? exchange_moved(moved, table) : status;
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
      if (extent->resident) continue;
      if (is_moved(*extent))
        extent->host->restore();
      else
        (void)extent->descend(extent->region.backend);
    }
  }
  void disarm() { armed_ = false; }

 private:
  std::span<Extent* const> extents_;
  TransitionDevices& devices_;
  bool armed_ = true;
};

}  // namespace

/// A transition's turn: no other runs meanwhile, and it is the one to be seen as under way.
class Transitions::Turn {
 public:
  Turn(Transitions& transitions, const char* step, const ProgressSink& progress)
      : transitions_(transitions), turn_(transitions.mutex_), sink_([this, &progress](const Progress& now) {
          show(now);
          if (progress) progress(now);
        }) {
    const std::lock_guard lock(transitions_.running_mutex_);
    transitions_.running_ = {step, {}};
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;
  ~Turn() {
    const std::lock_guard lock(transitions_.running_mutex_);
    transitions_.running_.reset();
  }
  /// Shows progress, and passes it on.
  const ProgressSink& sink() const { return sink_; }

 private:
  void show(const Progress& now) {
    const std::lock_guard lock(transitions_.running_mutex_);
    transitions_.running_->progress = now;
  }

  Transitions& transitions_;
  const std::lock_guard<std::mutex> turn_;
  const ProgressSink sink_;
};

std::optional<RunningTransition> Transitions::running() const {
  const std::lock_guard lock(running_mutex_);
  return running_;
}

Result<TransitionReport> Transitions::pause(const std::optional<TagName>& tag, const CoreSettings& settings,
                                            const ProgressSink& progress) {
  const Turn turn(*this, "pause", progress);
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
  auto status = park(extents, devices, settings, turn.sink(), report);
  // What is kept for later pauses must not stand in the way of this one: that of others, then its own.
  if (!status && status.error().code() == Code::host_budget && drop_retained())
    status = park(extents, devices, settings, turn.sink(), report);
  if (!status && status.error().code() == Code::host_budget && drop_retained(extents))
    status = park(extents, devices, settings, turn.sink(), report);
  if (!status) return fail(status.error());
  report.devices = devices.reports();
  report.time = Clock::now() - start;
  return report;
}

Status Transitions::park(std::span<Extent* const> extents, TransitionDevices& devices, const CoreSettings& settings,
                         const ProgressSink& progress, TransitionReport& report) {
  const auto moved = to_be_moved(settings, extents, told_of_no_host_backing_);
  HostMove move(moved, store_, devices);
  if (auto status = move.copy(table_); !status) return status;
  if (auto status = save(table_, store_, settings, extents, progress); !status) return status;
  return give_back_memory(extents, store_, report);
}

Result<TransitionReport> Transitions::resume(const std::optional<TagName>& tag, const CoreSettings& settings,
                                             const ProgressSink& progress) {
  const auto deadline = Clock::now() + settings.device_wait.value_or(std::chrono::milliseconds{0});
  for (;;) {
    const bool last_try = Clock::now() >= deadline;
    auto report = resume_once(tag, settings, progress);
    if (report || report.error().code() != Code::device_memory || last_try) return report;
    std::this_thread::sleep_for(room_check_interval);
  }
}

Result<TransitionReport> Transitions::resume_once(const std::optional<TagName>& tag, const CoreSettings& settings,
                                                  const ProgressSink& progress) {
  const Turn turn(*this, "resume", progress);
  const auto start = Clock::now();
  // A capture that is under way does not mind a resume, unless this has to wait for the device; a new one waits.
  const auto no_new_captures = captures_.block();
  TransitionReport report;
  auto claim = table_.claim(tag, may_be_resumed);
  if (!no_new_captures &&
      std::any_of(claim.extents.begin(), claim.extents.end(), [](const Extent* e) { return is_moved(*e); }))
    return fail(no_new_captures.error());
  table_.lay_out(claim, settings.device_slack);
  auto& extents = claim.extents;
  // Backed content first: its host memory is free again before the discarded rest asks for anything.
  std::stable_partition(extents.begin(), extents.end(), [](const Extent* extent) { return extent->backup != nullptr; });

  TransitionDevices devices(extents);
  devices.note_before();
  if (auto status = devices.has_room(extents); !status) return fail(status.error());
  Rollback rollback(extents, devices);
  CopyProgress copied(extents, turn.sink());
  auto status = bring_back(table_, settings, extents, devices, copied);
  if (!status) return fail(status.error());
  rollback.disarm();
  copied.finished();
  for (Extent* extent : extents) {
    if (!extent->resident) count_paused(report, *extent);
    extent->resident = true;
    if (extent->backup) extent->retained = store_.retain(std::move(extent->backup));
    retire_host_backing(*extent, store_);
  }
  report.devices = devices.reports();
  report.time = Clock::now() - start;
  return report;
}

}  // namespace lowtide

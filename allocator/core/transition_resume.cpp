// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <iterator>

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
constexpr std::uint8_t poison_byte = 0xcd;
/// Less than for an unmap: the copies of a run begin when it is mapped.
constexpr RunLimit mapped_at_once{64, 64_MiB};

/// What a resume may find to do: parked content, or what an earlier attempt left with an extent that is resident.
bool may_be_resumed(const Extent& extent) {
  return extent.blocks > 0 && (!extent.resident || extent.backup != nullptr || extent.host != nullptr);
}

/// Memory at the extent's address or, where somebody else has that and the owner follows, elsewhere.
Status get_memory(BlockTable& table, Extent& extent, bool may_move) {
  Backend& backend = extent.region.backend;
  if (extent.is_elsewhere() && !may_move) {  // an earlier attempt could not give that back
    if (auto status = table.park(extent); !status) return status;
  }
  auto status = extent.climb_to_mapped(backend);
  if (status || status.error().code() != Code::moved || !may_move || extent.is_elsewhere()) return status;
  if (status = table.send_elsewhere(extent); !status) return status;
  return extent.climb_to_mapped(backend);
}

Status get_memory(BlockTable& table, Extent& extent, bool may_move, AdmittedTransition& admitted) {
  const bool held = extent.holds_memory();
  auto status = get_memory(table, extent, may_move);
  if (!held && extent.holds_memory()) admitted.taken(extent);
  return status;
}

/// Memory, access and content for neighbours; the content is there after finish_copies.
Status bring_back(BlockTable& table, std::span<Extent* const> run, const TagSettings& tag,
                  AdmittedTransition& admitted) {
  Backend& backend = run.front()->region.backend;
  const auto peers = table.peers_of(backend.device());
  for (Extent* extent : run) {
    if (auto status = get_memory(table, *extent, tag.may_move, admitted); !status) return status;
  }
  if (auto status = Extent::set_access(run, backend, peers); !status) return status;
  for (Extent* extent : run) {
    Status status;
    if (extent->backup)
      status = extent->backup->begin_load(backend, extent->place().start);
    else if (tag.fill != Fill::none)
      status = backend.fill(extent->place(), tag.fill == Fill::zero ? std::uint8_t{0} : poison_byte);
    if (!status) return status;
  }
  return {};
}

std::vector<Extent*> parked_of(std::span<Extent* const> extents) {
  std::vector<Extent*> parked;
  std::copy_if(extents.begin(), extents.end(), std::back_inserter(parked),
               [](auto* extent) { return !extent->resident; });
  return parked;
}

/// Backed content first: its host memory is free again before the discarded rest asks for anything. Where the address
/// has to be tried for, the order in which they were made comes before that.
void put_in_order(std::vector<Extent*>& extents) {
  std::stable_partition(extents.begin(), extents.end(), [](const Extent* extent) { return extent->backup != nullptr; });
  const auto order = [](const Extent* extent) {
    return extent->region.backend.capabilities().stable_address ? 0 : 1 + extent->order;
  };
  std::stable_sort(extents.begin(), extents.end(), [&](auto* a, auto* b) { return order(a) < order(b); });
}

std::size_t blocks_elsewhere(std::span<Extent* const> extents) {
  std::size_t blocks = 0;
  for (const Extent* extent : extents) {
    if (extent->is_elsewhere()) blocks += extent->blocks;
  }
  return blocks;
}

Status check_loaded(std::span<Extent* const> extents) {
  for (const Extent* extent : extents) {
    if (extent->resident || !extent->backup) continue;
    if (auto status = extent->backup->check_loaded(extent->region.backend, extent->place().start); !status) {
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
                  AdmittedTransition& admitted, CopyProgress& copied) {
  return for_each_run(parked, mapped_at_once, [&](std::span<Extent* const> run) -> Status {
    if (auto status = bring_back(table, run, settings_of(settings, *run.front()), admitted); !status) return status;
    return copied.started(run);
  });
}

/// All parked ones of `extents`: their content is back, but nothing is dropped yet.
Status bring_back(BlockTable& table, const CoreSettings& settings, std::span<Extent* const> extents,
                  TransitionDevices& devices, AdmittedTransition& admitted, CopyProgress& copied) {
  std::vector<Extent*> parked;
  std::vector<Extent*> moved;
  for (Extent* extent : extents) {
    if (!extent->resident) (is_moved(*extent) ? moved : parked).push_back(extent);
  }
  auto status = bring_back(table, settings, parked, admitted, copied);
  if (status) status = stage_moved(moved, admitted);
  if (status) status = devices.finish_copies();
  if (status) status = check_loaded(parked);
  if (status) status = fill_stale(table, settings, parked);
  // Kernels may have been reading what leaves its address now.
  if (status && !moved.empty()) status = devices.synchronise();
  return status ? exchange_moved(moved, table) : status;
}

/// Gives back what a resume that fails had already got.
class Rollback {
 public:
  Rollback(BlockTable& table, std::span<Extent* const> extents, TransitionDevices& devices)
      : table_(table), extents_(extents), devices_(devices) {}
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
        (void)table_.park(*extent);
    }
  }
  void disarm() { armed_ = false; }

 private:
  BlockTable& table_;
  std::span<Extent* const> extents_;
  TransitionDevices& devices_;
  bool armed_ = true;
};

/// All content is back: the extents are resident, and their backups are kept for the next pause or go. Allocates
/// nothing: `report` has room for all that moved.
void settle(BlockTable& table, BackupStore& store, const CoreSettings& settings, std::span<Extent* const> extents,
            TransitionReport& report) {
  for (Extent* extent : extents) {
    if (extent->is_elsewhere()) table.settle_elsewhere(*extent, report.moves);
    if (!extent->resident) {
      const bool all = copies_stale(table, settings, *extent);
      count(report, *extent, table.note_resumed(*extent, all, is_covered(settings, *extent)));
    }
    extent->resident = true;
    if (extent->backup) extent->retained = store.retain(std::move(extent->backup));
    retire_host_backing(*extent, store);
  }
}

}  // namespace

Result<TransitionReport> Transitions::resume(const std::optional<TagName>& tag, const CoreSettings& settings,
                                             const ProgressSink& progress) {
  return try_for(settings, [&] { return resume_once(tag, settings, progress); });
}

Result<TransitionReport> Transitions::resume_once(const std::optional<TagName>& tag, const CoreSettings& settings,
                                                  const ProgressSink& progress) {
  const Turn turn(*this, "resume", progress);
  const auto start = Clock::now();
  // A capture that is under way does not mind a resume, unless this has to wait for the device; a new one waits.
  const auto no_new_captures = captures_.block();
  TransitionReport report;
  AdmittedTransition admitted(admission_, table_);
  auto claim = table_.claim(tag, may_be_resumed);
  if (!no_new_captures &&
      std::any_of(claim.extents.begin(), claim.extents.end(), [](const Extent* e) { return is_moved(*e); }))
    return fail(no_new_captures.error());
  if (auto status = refuse_updates(table_, parked_of(claim.extents), "resume"); !status) return fail(status.error());
  table_.lay_out(claim, settings.device_slack);
  auto& extents = claim.extents;
  put_in_order(extents);
  const auto plan = plan_of(TransitionPlan::Step::resume, tag, parked_of(extents),
                            [](const Extent& extent) { return extent.backup == nullptr; });
  if (auto status = admitted.ask(plan); !status) return fail(status.error());

  TransitionDevices devices(extents);
  devices.note_before();
  if (auto status = devices.has_room(extents); !status) return fail(status.error());
  Rollback rollback(table_, extents, devices);
  CopyProgress copied(extents, turn.sink());
  const ObservedCopy copy(observer_, Observer::Copy::in);
  auto status = bring_back(table_, settings, extents, devices, admitted, copied);
  if (!status) return fail(status.error());
  report.moves.reserve(blocks_elsewhere(extents));
  copy.done(extents, [](const Extent& extent) { return extent.resident ? Bytes{} : copied_of(extent); });
  rollback.disarm();
  admitted.done();
  copied.finished();
  settle(table_, store_, settings, extents, report);
  report.devices = devices.reports();
  report.time = Clock::now() - start;
  return report;
}

}  // namespace lowtide

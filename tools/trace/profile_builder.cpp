// SPDX-License-Identifier: Apache-2.0
#include "tools/trace/profile_builder.hpp"

#include <fmt/format.h>

#include <map>
#include <set>
#include <utility>

#include "tools/trace/accounting.hpp"
#include "tools/trace/load.hpp"
#include "tools/trace/phases.hpp"
#include "tools/trace/sites.hpp"
#include "tools/trace/timeline.hpp"
#include "tools/view/counted.hpp"

namespace lowtide::tools {
namespace {

using trace::Op;
using trace::TraceEvent;

class Builder {
 public:
  explicit Builder(trace::Reader& reader)
      : reader_(reader), accounting_(reader), processes_(reader.processes().size()) {}

  void take(const TraceEvent& traced) {
    const auto touched = accounting_.take(traced);
    auto& process = processes_[traced.process];
    process.last_time = std::max(process.last_time, traced.time);
    // A sample that ended here may be another process's.
    for (const auto place : touched) see(place, traced.time);
    count_site(traced, process);
    cut(traced, process);
  }

  Profile finish() && {
    for (const auto place : accounting_.finish()) see(place, processes_[accounting_.state(place).process].last_time);
    Profile profile;
    for (std::uint32_t i = 0; i < processes_.size(); ++i) profile.processes.push_back(process_profile(i));
    add_notes(profile);
    return profile;
  }

 private:
  struct Process {
    std::int64_t last_time = 0;
    PhaseCutter declared;
    PhaseCutter inferred;
    InferredPhases names;
    SiteCounter sites;
    ProcessProfile counts;
  };

  void see(std::uint32_t place, std::int64_t time) {
    const auto& state = accounting_.state(place);
    auto& process = processes_[state.process];
    process.declared.see(state, time);
    process.inferred.see(state, time);
    if (timelines_.size() <= place) timelines_.resize(place + 1);
    timelines_[place].add(time, state.used, state.bytes);
  }

  void count_site(const TraceEvent& traced, Process& process) {
    if (traced.event.op == Op::alloc && traced.event.stack != trace::StackId{}) {
      const auto& live = accounting_.live(traced.process);
      if (const auto found = live.find(traced.event.address); found != live.end())
        process.sites.allocated(found->second);
    }
    if (accounting_.freed()) process.sites.freed(*accounting_.freed());
  }

  std::set<std::string> tags_of(std::uint32_t process) const {
    std::set<std::string> tags;
    for (std::uint32_t i = 0; i < accounting_.states(); ++i) {
      const auto& state = accounting_.state(i);
      if (state.process != process) continue;
      for (const auto& series : state.series) {
        if (series.kind == Series::Kind::tag) tags.insert(series.name);
      }
    }
    return tags;
  }

  void cut(const TraceEvent& traced, Process& process) {
    const auto& event = traced.event;
    if (event.op == Op::alloc || event.op == Op::free) return;
    const bool pause = event.op == Op::pause_begin || event.op == Op::pause_end;
    const std::string name(reader_.text(traced.process, event.name));
    switch (event.op) {
      case Op::phase: process.counts.declared = true; return process.declared.begin(name, traced.time);
      case Op::pause_begin:
      case Op::resume_begin: return process.inferred.begin(process.names.begin(pause, name), traced.time);
      case Op::pause_end:
      case Op::resume_end: {
        const bool worked = trace::result_of(event) == 0;
        (pause ? process.counts.pauses : process.counts.resumes) += worked ? 1 : 0;
        return process.inferred.begin(process.names.end(pause, name, worked, tags_of(traced.process)), traced.time);
      }
      case Op::wait: process.declared.wait(event.value); return process.inferred.wait(event.value);
      case Op::refusal: ++process.counts.refusals; return;
      case Op::out_of_memory: ++process.counts.out_of_memory; return;
      default: return;
    }
  }

  DeviceProfile device_profile(std::uint32_t place, std::vector<PhaseRun> runs) const {
    const auto& state = accounting_.state(place);
    DeviceProfile device;
    device.device = state.device;
    device.total.value = state.total;
    device.series = state.series;
    device.runs = std::move(runs);
    if (place < timelines_.size()) device.points = timelines_[place].points();
    for (const auto& each : reader_.devices(state.process)) {
      if (each.ordinal != state.device) continue;
      device.name = each.name;
      device.uuid = each.uuid;
    }
    return device;
  }

  ProcessProfile process_profile(std::uint32_t index) {
    auto& process = processes_[index];
    auto& cutter = process.counts.declared ? process.declared : process.inferred;
    cutter.end(process.last_time);
    auto runs = std::move(cutter).take();
    auto profile = std::move(process.counts);
    const auto& traced = reader_.processes()[index];
    profile.name = traced.command;
    profile.pid = traced.pid;
    profile.host = traced.host;
    for (std::uint32_t i = 0; i < accounting_.states(); ++i) {
      const auto& state = accounting_.state(i);
      if (state.process == index) profile.devices.push_back(device_profile(i, std::move(runs[state.device])));
    }
    std::sort(profile.devices.begin(), profile.devices.end(),
              [](const DeviceProfile& a, const DeviceProfile& b) { return a.device < b.device; });
    profile.sites = process.sites.top(reader_, index, accounting_);
    return profile;
  }

  void add_notes(Profile& profile) const {
    for (const auto& process : reader_.processes()) {
      if (process.overwritten > 0) {
        profile.notes.push_back(fmt::format("{}: the first {} made room for later ones; a larger trace.size keeps them",
                                            process.path, counted(process.overwritten, "event")));
      }
      if (process.dropped + process.dropped_entries > 0) {
        profile.notes.push_back(fmt::format("{}: {} and {} were lost for lack of room", process.path,
                                            counted(process.dropped, "event"),
                                            counted(process.dropped_entries, "name")));
      }
    }
    for (const auto& damage : reader_.damage())
      profile.notes.push_back(fmt::format("{}: at byte {}: {}", damage.path, damage.offset, damage.what));
    if (accounting_.forgotten() > 0)
      profile.notes.push_back(counted(accounting_.forgotten(), "allocation") +
                              " lived beside too many others to be followed");
  }

  trace::Reader& reader_;
  Accounting accounting_;
  std::vector<Process> processes_;
  std::vector<Timeline> timelines_;  ///< by place of the state
};

}  // namespace

Profile build_profile(trace::Reader& reader) {
  Builder builder(reader);
  for_each_event(reader, [&](const TraceEvent& traced) { builder.take(traced); });
  return std::move(builder).finish();
}

}  // namespace lowtide::tools

// SPDX-License-Identifier: Apache-2.0
#include "tools/trace/phases.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

namespace lowtide::tools {
namespace {

// What a file of somebody who means harm can make us keep.
constexpr std::size_t most_runs = 100'000;
constexpr std::size_t most_names = 10'000;

Moment moment_of(const DeviceState& state, std::int64_t time) {
  Moment moment{time, {}, {}, {state.used}};
  for (std::size_t i = 0; i < state.series.size(); ++i) {
    const auto kind = state.series[i].kind;
    if (kind != Series::Kind::tag && kind != Series::Kind::unmanaged) continue;
    moment.allocated.value += state.bytes[i];
    moment.reserved.value += state.bytes[i] + state.parked[i];
  }
  return moment;
}

Bytes backups_of(const DeviceState& state) {
  Bytes sum;
  for (const auto bytes : state.backup) sum.value += bytes;
  return sum;
}

}  // namespace

void PhaseCutter::open(const DeviceState& state, PhaseRun& run, std::int64_t time) const {
  run.name = name_;
  run.step = step_;
  run.start = start_ == 0 ? time : start_;
  run.first = moment_of(state, run.start);
}

void PhaseCutter::see(const DeviceState& state, std::int64_t time) {
  auto& runs = runs_[state.device];
  states_[state.device] = &state;
  auto& cut = cut_of_[state.device];
  if (runs.empty() || (cut != cut_ && runs.size() < most_runs)) {
    open(state, runs.emplace_back(), time);
    cut = cut_;
  }
  auto& run = runs.back();
  run.end = time;
  run.peaks.resize(state.bytes.size());
  for (std::size_t i = 0; i < state.bytes.size(); ++i)
    run.peaks[i].value = std::max(run.peaks[i].value, state.bytes[i]);
  run.used.value = std::max(run.used.value, state.used);
  run.backups = std::max(run.backups, backups_of(state));
}

void PhaseCutter::end(std::int64_t time) {
  for (auto& [device, runs] : runs_) {
    if (runs.empty() || cut_of_[device] != cut_) continue;
    runs.back().end = time;
    runs.back().last = moment_of(*states_[device], time);
  }
}

void PhaseCutter::begin(std::string name, std::int64_t time) {
  end(time);
  name_ = std::move(name);
  if (of_step_.size() == most_names || of_step_.contains(name_)) {
    ++step_;
    of_step_.clear();
  }
  of_step_.insert(name_);
  start_ = time;
  ++cut_;
  // What is there at its beginning counts, though nothing changes in it.
  for (const auto& [device, state] : states_) see(*state, time);
}

void PhaseCutter::wait(std::uint64_t nanoseconds) {
  for (auto& [device, runs] : runs_) {
    if (!runs.empty()) runs.back().waited += nanoseconds;
  }
}

std::map<int, std::vector<PhaseRun>> PhaseCutter::take() && { return std::move(runs_); }

std::string InferredPhases::resting(const std::set<std::string>& tags) const {
  if (parked_.empty()) return "all resident";
  if (std::includes(parked_.begin(), parked_.end(), tags.begin(), tags.end())) return "all parked";
  return fmt::format("without {}", fmt::join(parked_, ", "));
}

std::string InferredPhases::begin(bool pause, const std::string& tag) const {
  return fmt::format("{} {}", pause ? "pause" : "resume", tag.empty() ? "all" : tag);
}

std::string InferredPhases::end(bool pause, const std::string& tag, bool worked, const std::set<std::string>& tags) {
  if (worked && pause && tag.empty()) parked_ = tags;
  if (worked && pause && !tag.empty()) parked_.insert(tag);
  if (worked && !pause && tag.empty()) parked_.clear();
  if (worked && !pause) parked_.erase(tag);
  if (worked) last_ = resting(tags);
  return last_;
}

}  // namespace lowtide::tools

// SPDX-License-Identifier: Apache-2.0
#include "tools/trace/accounting.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace lowtide::tools {
namespace {

using trace::Memory;
using trace::Op;
using trace::TraceEvent;

// What a file of somebody who means harm can make us keep.
constexpr std::size_t most_live = 4'000'000;
constexpr std::size_t most_series = 256;

// A process that records has its devices sampled again and again. One that says nothing for this long has ended.
constexpr std::uint64_t silence = 5'000'000'000;  // nanoseconds

// The first two series of every state.
constexpr std::uint32_t others_place = 0;
constexpr std::uint32_t unattributed_place = 1;

bool is_row(Op op) { return op == Op::sample_tag || op == Op::sample_unmanaged || op == Op::sample_others; }

/// Whether memory of this kind takes room on a device. Unified memory may lie anywhere, and what is pinned on the host
/// lies there.
bool is_on_device(Memory memory) {
  return memory != Memory::managed && memory != Memory::host_pinned && memory != Memory::host_registered;
}

/// Nanoseconds, whatever times a file of somebody who means harm has.
std::uint64_t silent_for(std::int64_t seen, std::int64_t time) {
  return time > seen ? static_cast<std::uint64_t>(time) - static_cast<std::uint64_t>(seen) : 0;
}

}  // namespace

Accounting::Accounting(const trace::Reader& reader)
    : reader_(reader),
      places_(reader.processes().size()),
      live_(reader.processes().size()),
      last_seen_(reader.processes().size()) {}

std::uint32_t Accounting::state_of(std::uint32_t process, int device) {
  const auto [found, is_new] = places_[process].try_emplace(device, static_cast<std::uint32_t>(states_.size()));
  if (is_new) {
    auto state = std::make_unique<DeviceState>();
    state->process = process;
    state->device = device;
    states_.push_back(std::move(state));
    tags_.emplace_back();
    series_of(*states_.back(), Series::Kind::others, "other processes");
    series_of(*states_.back(), Series::Kind::unattributed, "unattributed");
    for (const auto& each : reader_.devices(process)) {
      if (each.ordinal != device) continue;
      states_.back()->total = each.total.value;
      if (!each.uuid.empty())
        states_.back()->where = fmt::format("{}/{}", reader_.processes()[process].host, each.uuid);
    }
  }
  return found->second;
}

std::uint32_t Accounting::series_of(DeviceState& state, Series::Kind kind, std::string_view name) {
  const auto found = std::find_if(state.series.begin(), state.series.end(),
                                  [&](const Series& each) { return each.kind == kind && each.name == name; });
  if (found != state.series.end()) return static_cast<std::uint32_t>(found - state.series.begin());
  if (state.series.size() == most_series) return most_series - 1;
  const bool last = state.series.size() + 1 == most_series;
  state.series.push_back(last ? Series{Series::Kind::tag, "further tags"} : Series{kind, std::string(name)});
  state.bytes.push_back(0);
  state.parked.push_back(0);
  state.backup.push_back(0);
  return static_cast<std::uint32_t>(state.series.size() - 1);
}

std::uint32_t Accounting::tag_of(std::uint32_t place, std::uint32_t process, trace::StringId name) {
  const auto [found, is_new] = tags_[place].try_emplace(static_cast<std::uint32_t>(name), 0);
  if (is_new) {
    const auto text = reader_.text(process, name);
    found->second = series_of(*states_[place], Series::Kind::tag, text.empty() ? "no tag" : text);
  }
  return found->second;
}

std::uint32_t Accounting::unmanaged_of(std::uint32_t place, Memory memory) {
  return series_of(*states_[place], Series::Kind::unmanaged, trace::to_text(memory));
}

void Accounting::touch(std::uint32_t place) {
  if (std::find(touched_.begin(), touched_.end(), place) == touched_.end()) touched_.push_back(place);
}

/// A ring may have lost the allocation of what is freed: bytes end at 0.
void Accounting::change(std::uint32_t place, std::uint32_t series, std::uint64_t more, std::uint64_t less) {
  auto& state = *states_[place];
  auto& bytes = state.bytes[series];
  less = std::min(less, bytes);
  bytes = bytes - less + more;
  state.used = state.used - less + more;
  touch(place);
}

void Accounting::allocate(const TraceEvent& traced) {
  const auto& event = traced.event;
  const auto memory = static_cast<Memory>(event.kind);
  const bool managed = trace::is_managed(event);
  if (!managed && !is_on_device(memory)) return;
  const auto place = state_of(traced.process, event.device);
  const auto series = managed ? tag_of(place, traced.process, event.name) : unmanaged_of(place, memory);
  auto& live = live_[traced.process];
  const LiveBlock block{event.bytes, place, series, event.stack, managed};
  if (const auto found = live.find(event.address); found != live.end()) {  // the free of what was there is lost
    change(found->second.state, found->second.series, 0, found->second.bytes);
    found->second = block;
  } else if (live_count_ < most_live) {
    live.emplace(event.address, block);
    ++live_count_;
  } else {
    ++forgotten_;
  }
  change(place, series, event.bytes, 0);
}

void Accounting::release(const TraceEvent& traced) {
  const auto& event = traced.event;
  auto& live = live_[traced.process];
  if (const auto found = live.find(event.address); found != live.end()) {
    freed_ = found->second;
    live.erase(found);
    --live_count_;
  } else if (event.bytes > 0 && (trace::is_managed(event) || is_on_device(static_cast<Memory>(event.kind)))) {
    const auto place = state_of(traced.process, event.device);
    const bool managed = trace::is_managed(event);
    const auto series =
        managed ? tag_of(place, traced.process, event.name) : unmanaged_of(place, static_cast<Memory>(event.kind));
    freed_ = LiveBlock{event.bytes, place, series, {}, managed};
  }
  if (!freed_) return;
  // Of a parked block there is nothing on the device: what its tag has not resident was parked.
  auto& state = *states_[freed_->state];
  const auto resident = std::min(state.bytes[freed_->series], freed_->bytes);
  const auto parked = std::min(state.parked[freed_->series], freed_->bytes - resident);
  state.parked[freed_->series] -= parked;
  state.backup[freed_->series] -= std::min(state.backup[freed_->series], parked);
  change(freed_->state, freed_->series, 0, resident);
}

void Accounting::move(std::uint32_t place, std::uint32_t series, bool park) {
  auto& state = *states_[place];
  if (park) {
    state.parked[series] += state.bytes[series];
    change(place, series, 0, state.bytes[series]);
  } else {
    const auto back = state.parked[series];
    state.parked[series] = 0;
    state.backup[series] = 0;
    change(place, series, back, 0);
  }
}

/// The end of a pause or a resume. Of a pause that kept something, the sample behind it says what.
void Accounting::transition(const TraceEvent& traced) {
  const auto& event = traced.event;
  const auto moved = trace::moved(event);
  const bool park = event.op == Op::pause_end;
  if (trace::result_of(event) != 0 || (park && moved.kept.value > 0)) return;
  for (const auto& [device, place] : places_[traced.process]) {
    auto& state = *states_[place];
    for (std::uint32_t i = 0; i < state.series.size(); ++i) {
      if (state.series[i].kind != Series::Kind::tag) continue;
      if (event.name != trace::StringId{} && state.series[i].name != reader_.text(traced.process, event.name)) continue;
      move(place, i, park);
    }
  }
}

void Accounting::take_row(const TraceEvent& traced) {
  const auto& event = traced.event;
  const auto place = state_of(traced.process, event.device);
  auto series = others_place;
  if (event.op == Op::sample_unmanaged) {
    const auto memory = static_cast<Memory>(event.kind);
    if (!is_on_device(memory)) return;
    series = unmanaged_of(place, memory);
  }
  if (event.op == Op::sample_tag) {
    series = tag_of(place, traced.process, event.name);
    states_[place]->parked[series] = event.value;
    states_[place]->backup[series] = event.address;
  }
  if (sample_ && sample_->state == place) {
    sample_->rows.resize(std::max<std::size_t>(sample_->rows.size(), series + 1));
    sample_->rows[series] = event.bytes;
  } else {
    change(place, series, event.bytes, states_[place]->bytes[series]);
  }
}

/// What others hold on the device at `time`: of tags at least what the process was told, and what their own traces say
/// is in no tag.
std::uint64_t Accounting::held_beside(const DeviceState& state, std::int64_t time, std::uint64_t told) const {
  std::uint64_t tags = 0;
  std::uint64_t unmanaged = 0;
  for (const auto& other : states_) {
    if (other->process == state.process || other->where != state.where || state.where.empty()) continue;
    if (silent_for(last_seen_[other->process], time) > silence) continue;
    for (std::size_t i = 0; i < other->series.size(); ++i) {
      const auto& [kind, name] = other->series[i];
      const bool of_tags = kind == Series::Kind::tag || name == trace::to_text(Memory::slack);
      if (of_tags) tags += other->bytes[i];
      if (!of_tags && kind == Series::Kind::unmanaged) unmanaged += other->bytes[i];
    }
  }
  return std::max(told, tags) + unmanaged;
}

/// The sample is whole: what no row speaks of is not there. The device and its holders are asked one after the other,
/// so the rows may be more than what is used: they get it in the order of how exactly their bytes are known.
void Accounting::end_sample() {
  auto& state = *states_[sample_->state];
  auto& rows = sample_->rows;
  rows.resize(state.series.size());
  rows[others_place] = held_beside(state, sample_->time, rows[others_place]);
  auto left = sample_->used;
  for (const auto kind : {Series::Kind::tag, Series::Kind::unmanaged, Series::Kind::others}) {
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (state.series[i].kind != kind) continue;
      rows[i] = std::min(rows[i], left);
      left -= rows[i];
    }
  }
  rows[unattributed_place] = left;
  state.bytes = std::move(rows);
  state.used = sample_->used;
  touch(sample_->state);
  sample_.reset();
}

/// Whether the event was a part of a sample.
bool Accounting::take_sample(const TraceEvent& traced) {
  const auto& event = traced.event;
  if (event.op == Op::sample_device) {
    const auto place = state_of(traced.process, event.device);
    if (event.value > 0) states_[place]->total = event.value;
    sample_ = Sample{place, traced.thread, traced.time, event.bytes, {}};
    return true;
  }
  if (!is_row(event.op)) return false;
  take_row(traced);
  return true;
}

void Accounting::take_memory(const TraceEvent& traced) {
  switch (traced.event.op) {
    case Op::alloc: return allocate(traced);
    case Op::free: return release(traced);
    case Op::pause_end:
    case Op::resume_end: return transition(traced);
    default: return;
  }
}

std::span<const std::uint32_t> Accounting::take(const TraceEvent& traced) {
  touched_.clear();
  freed_.reset();
  last_seen_[traced.process] = traced.time;
  const bool continues = sample_ && is_row(traced.event.op) && traced.thread == sample_->thread &&
                         traced.time == sample_->time && states_[sample_->state]->process == traced.process;
  if (sample_ && !continues) end_sample();
  if (!take_sample(traced)) take_memory(traced);
  return touched_;
}

std::span<const std::uint32_t> Accounting::finish() {
  touched_.clear();
  freed_.reset();
  if (sample_) end_sample();
  return touched_;
}

}  // namespace lowtide::tools

// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <tuple>

#include "tools/export/exports.hpp"
#include "tools/export/protobuf.hpp"
#include "tools/trace/accounting.hpp"
#include "tools/trace/load.hpp"
#include "tools/trace/phase_table.hpp"

namespace lowtide::tools {
namespace {

using trace::Op;
using trace::TraceEvent;

// Numbers of fields and values, from the protos of google/perfetto.
enum TraceField : std::uint32_t { packet = 1 };
enum PacketField : std::uint32_t { timestamp = 8, sequence_id = 10, track_event = 11, track_descriptor = 60 };
enum TrackField : std::uint32_t { uuid = 1, track_name = 2, process_descriptor = 3, parent_uuid = 5, counter = 8 };
enum ProcessField : std::uint32_t { process_pid = 1, process_name = 6 };
enum CounterField : std::uint32_t { counter_unit = 3 };
enum EventField : std::uint32_t { event_type = 9, track_uuid = 11, category = 22, event_name = 23, counter_value = 30 };
constexpr std::uint64_t unit_bytes = 3;
enum EventType : std::uint64_t { slice_begin = 1, slice_end = 2, instant = 3, counter_event = 4 };

constexpr std::uint64_t our_sequence = 1;

class Writer {
 public:
  Writer(trace::Reader& reader, Output& output) : reader_(reader), output_(output), accounting_(reader) {
    for (std::uint32_t i = 0; i < reader.processes().size(); ++i) describe_process(i);
  }

  void take(const TraceEvent& traced) {
    for (const auto place : accounting_.take(traced)) counters(place, traced.time);
    happened(traced);
    last_time_ = std::max(last_time_, traced.time);
  }

  void finish() {
    for (const auto place : accounting_.finish()) counters(place, last_time_);
    for (const auto& [track, name] : open_phases_) event(last_time_, track, slice_end, "");
  }

 private:
  void write(const Message& message) {
    Message trace;
    trace.add(packet, message);
    output_.write(trace.bytes());
  }

  void describe(std::uint64_t id, std::uint64_t parent, const std::string& name, bool counts) {
    Message descriptor;
    descriptor.add(uuid, id);
    descriptor.add(track_name, name);
    descriptor.add(parent_uuid, parent);
    if (counts) {
      Message unit;
      unit.add(counter_unit, unit_bytes);
      descriptor.add(counter, unit);
    }
    write_descriptor(descriptor);
  }

  void write_descriptor(const Message& descriptor) {
    Message message;
    message.add(sequence_id, our_sequence);
    message.add(track_descriptor, descriptor);
    write(message);
  }

  void describe_process(std::uint32_t process) {
    const auto& traced = reader_.processes()[process];
    Message about;
    about.add(process_pid, std::uint64_t{traced.pid});
    about.add(process_name, traced.host.empty() ? traced.command : traced.host + ": " + traced.command);
    Message descriptor;
    descriptor.add(uuid, process_track(process));
    descriptor.add(process_descriptor, about);
    write_descriptor(descriptor);
  }

  static std::uint64_t process_track(std::uint32_t process) { return process + std::uint64_t{1}; }

  /// The track of that name in a process; made at its first use.
  std::uint64_t track(std::uint32_t process, const std::string& name, bool counts) {
    const auto next = reader_.processes().size() + tracks_.size() + 1;
    const auto [found, is_new] = tracks_.try_emplace({process, name}, next);
    if (is_new) describe(next, process_track(process), name, counts);
    return found->second;
  }

  void event(std::int64_t time, std::uint64_t track_id, EventType type, std::string_view name) {
    Message about;
    about.add(event_type, std::uint64_t{type});
    about.add(track_uuid, track_id);
    about.add(category, "lowtide");
    if (!name.empty()) about.add(event_name, name);
    write_event(time, about);
  }

  void write_event(std::int64_t time, const Message& about) {
    Message message;
    message.add(timestamp, static_cast<std::uint64_t>(std::max<std::int64_t>(time, 0)));
    message.add(sequence_id, our_sequence);
    message.add(track_event, about);
    write(message);
  }

  void count(std::int64_t time, std::uint64_t track_id, std::uint64_t value) {
    Message about;
    about.add(event_type, std::uint64_t{counter_event});
    about.add(track_uuid, track_id);
    about.add(counter_value, value);
    write_event(time, about);
  }

  /// Those of the state that changed.
  void counters(std::uint32_t place, std::int64_t time) {
    const auto& state = accounting_.state(place);
    auto& written = written_[place];
    const auto tell = [&](std::size_t at, const std::string& name, std::uint64_t value) {
      if (written.size() <= at) written.resize(at + 1, {0, 0});
      auto& [track_id, last] = written[at];
      if (track_id != 0 && last == value) return;
      if (track_id == 0) {
        if (value == 0) return;
        track_id = track(state.process, fmt::format("device {} {}", state.device, name), true);
      }
      last = value;
      count(time, track_id, value);
    };
    tell(0, "used", state.used);
    for (std::size_t i = 0; i < state.series.size(); ++i) tell(i + 1, title_of(state.series[i]), state.bytes[i]);
  }

  void phase(const TraceEvent& traced, std::string_view name) {
    const auto id = track(traced.process, "phases", false);
    const auto [found, is_new] = open_phases_.try_emplace(id, "");
    if (!is_new) event(traced.time, id, slice_end, "");
    found->second = fmt::format("{} {}", name, traced.event.value);
    event(traced.time, id, slice_begin, found->second);
  }

  void happened(const TraceEvent& traced) {
    const auto& each = traced.event;
    const auto name = reader_.text(traced.process, each.name);
    const auto whose = name.empty() ? std::string_view("all") : name;
    const auto transitions = [&] { return track(traced.process, "pauses and resumes", false); };
    switch (each.op) {
      case Op::phase: return phase(traced, name);
      case Op::pause_begin: return event(traced.time, transitions(), slice_begin, fmt::format("pause {}", whose));
      case Op::resume_begin: return event(traced.time, transitions(), slice_begin, fmt::format("resume {}", whose));
      case Op::pause_end:
      case Op::resume_end: return event(traced.time, transitions(), slice_end, "");
      case Op::wait: return wait(traced);
      case Op::refusal:
      case Op::out_of_memory:
        return event(traced.time, track(traced.process, "refusals", false), instant,
                     fmt::format("{} {}", trace::to_text(each.op), whose));
      default: return;
    }
  }

  /// It is told when it is over.
  void wait(const TraceEvent& traced) {
    const auto id = track(traced.process, "waits", false);
    const auto name = trace::to_text(static_cast<trace::Wait>(traced.event.kind));
    const auto time = static_cast<std::uint64_t>(std::max<std::int64_t>(traced.time, 0));
    event(static_cast<std::int64_t>(time - std::min(time, traced.event.value)), id, slice_begin, name);
    event(traced.time, id, slice_end, "");
  }

  trace::Reader& reader_;
  Output& output_;
  Accounting accounting_;
  std::map<std::pair<std::uint32_t, std::string>, std::uint64_t> tracks_;
  /// By state: the tracks of its counters, and the value that was written last.
  std::map<std::uint32_t, std::vector<std::pair<std::uint64_t, std::uint64_t>>> written_;
  std::map<std::uint64_t, std::string> open_phases_;  ///< by track
  std::int64_t last_time_ = 0;
};

}  // namespace

void export_perfetto(trace::Reader& reader, Output& output) {
  Writer writer(reader, output);
  for_each_event(reader, [&](const TraceEvent& event) { writer.take(event); });
  writer.finish();
}

}  // namespace lowtide::tools

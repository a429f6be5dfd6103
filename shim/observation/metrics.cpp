// SPDX-License-Identifier: Apache-2.0
#include "shim/observation/metrics.hpp"

#include <charconv>
#include <initializer_list>
#include <utility>

namespace lowtide {
namespace {

constexpr std::array<const char*, 5> wait_words{"room", "gate", "capture", "other", "drain"};
constexpr std::array<const char*, 2> step_words{"pause", "resume"};

double seconds_of(std::chrono::nanoseconds time) { return std::chrono::duration<double>(time).count(); }

/// Without the host's locale.
template <class Number>
std::string text_of(Number number) {
  std::array<char, 64> digits{};
  return {digits.data(), std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr};
}

}  // namespace

/// Builds the text, family by family.
class Metrics::Page {
 public:
  using Labels = std::initializer_list<std::pair<const char*, std::string>>;
  explicit Page(const std::string& process) : process_(process) {}

  void family(const char* name, const char* type, const char* help) {
    name_ = name;
    text_.append("# HELP ").append(name).append(" ").append(help).append("\n");
    text_.append("# TYPE ").append(name).append(" ").append(type).append("\n");
  }
  template <class Number>
  void add(Labels labels, Number value, const char* suffix = "") {
    text_.append(name_).append(suffix).append("{").append(process_);
    // Names of tags, phases and our own words need no escape.
    for (const auto& [key, word] : labels) text_.append(",").append(key).append("=\"").append(word).append("\"");
    text_.append("} ").append(text_of(value)).append("\n");
  }
  std::string take() { return std::move(text_); }

 private:
  const std::string& process_;
  const char* name_ = "";
  std::string text_;
};

void Metrics::transition(Observer::Step step, const std::string& tag, std::chrono::nanoseconds time,
                         const Result<TransitionReport>& report) {
  const std::lock_guard lock(mutex_);
  auto& times = transitions_[static_cast<std::size_t>(step)][tag];
  ++times.count;
  times.seconds += seconds_of(time);
  if (!report) return;
  times.parked += report->parked;
  times.discarded += report->discarded;
}

void Metrics::refused(const Error& error) {
  const std::lock_guard lock(mutex_);
  ++refusals_[static_cast<int>(error.code())];
}

void Metrics::waited(Observer::Wait what, std::chrono::nanoseconds time) {
  const std::lock_guard lock(mutex_);
  waits_[static_cast<std::size_t>(what)] += seconds_of(time);
}

void Metrics::out_of_memory(DeviceId device) {
  const std::lock_guard lock(mutex_);
  ++no_room_[device];
}

void Metrics::phase(const std::string& name) {
  const std::lock_guard lock(mutex_);
  phase_ = name;
  ++phases_;
}

void Metrics::sampled(std::vector<DeviceSample> samples) {
  const std::lock_guard lock(mutex_);
  samples_ = std::move(samples);
}

void Metrics::lost(std::uint64_t dropped, std::uint64_t overwritten) {
  const std::lock_guard lock(mutex_);
  dropped_ = dropped;
  overwritten_ = overwritten;
}

std::string Metrics::text() const {
  const std::lock_guard lock(mutex_);
  Page page(process_);
  write_devices(page);
  write_transitions(page);
  write_counts(page);
  return page.take();
}

void Metrics::write_devices(Page& page) const {
  const auto number = [](const DeviceSample& sample) { return std::to_string(index_of(sample.device)); };
  page.family("lowtide_device_used_bytes", "gauge", "Device memory in use by all processes.");
  for (const auto& each : samples_)
    page.add({{"device", number(each)}}, each.memory.total.value - each.memory.free.value);
  page.family("lowtide_device_total_bytes", "gauge", "Device memory there is.");
  for (const auto& each : samples_) page.add({{"device", number(each)}}, each.memory.total.value);
  page.family("lowtide_device_bytes", "gauge", "Bytes of a tag's blocks, on the device (resident) or taken off it.");
  for (const auto& each : samples_) {
    for (const auto& tag : each.tags) {
      const std::string name(tag.tag.view());
      page.add({{"device", number(each)}, {"tag", name}, {"state", "resident"}}, tag.resident.value);
      page.add({{"device", number(each)}, {"tag", name}, {"state", "parked"}}, tag.parked.value);
    }
  }
  page.family("lowtide_backup_bytes", "gauge", "Bytes of parked blocks that are kept on the host.");
  for (const auto& each : samples_) {
    for (const auto& tag : each.tags)
      page.add({{"device", number(each)}, {"tag", std::string(tag.tag.view())}}, tag.backup.value);
  }
  page.family("lowtide_unmanaged_bytes", "gauge", "Bytes that the process allocated in no tag, by the way it did.");
  for (const auto& each : samples_) {
    for (std::size_t i = 0; i < each.unmanaged.size(); ++i) {
      if (each.unmanaged[i].value == 0) continue;
      page.add({{"device", number(each)}, {"kind", trace::to_text(static_cast<trace::Memory>(i))}},
               each.unmanaged[i].value);
    }
  }
  page.family("lowtide_slack_bytes", "gauge", "Bytes held for tags beyond what their blocks asked for.");
  for (const auto& each : samples_) page.add({{"device", number(each)}}, each.slack.value);
  page.family("lowtide_other_processes_bytes", "gauge", "Bytes in tags of the other processes under Lowtide.");
  for (const auto& each : samples_) page.add({{"device", number(each)}}, each.others.bytes.value);
}

void Metrics::write_transitions(Page& page) const {
  constexpr std::array<const char*, 2> seconds{"lowtide_pause_seconds", "lowtide_resume_seconds"};
  constexpr std::array<const char*, 2> help{"Time that pauses took, waits included.",
                                            "Time that resumes took, waits included."};
  for (std::size_t step = 0; step < transitions_.size(); ++step) {
    page.family(seconds[step], "summary", help[step]);
    for (const auto& [tag, times] : transitions_[step]) {
      page.add({{"tag", tag}}, times.seconds, "_sum");
      page.add({{"tag", tag}}, times.count, "_count");
    }
  }
  page.family("lowtide_moved_bytes_total", "counter", "Bytes that transitions copied out or in, or dropped.");
  for (std::size_t step = 0; step < transitions_.size(); ++step) {
    for (const auto& [tag, times] : transitions_[step]) {
      page.add({{"step", step_words[step]}, {"tag", tag}, {"how", "copied"}}, times.parked.value);
      page.add({{"step", step_words[step]}, {"tag", tag}, {"how", "dropped"}}, times.discarded.value);
    }
  }
}

void Metrics::write_counts(Page& page) const {
  page.family("lowtide_refusals_total", "counter", "Pauses, resumes and updates that were not done, by their result.");
  for (const auto& [code, count] : refusals_) page.add({{"result", to_text(static_cast<Code>(code))}}, count);
  page.family("lowtide_wait_seconds_total", "counter", "Time that threads waited, by what for.");
  for (std::size_t i = 0; i < waits_.size(); ++i) page.add({{"for", wait_words[i]}}, waits_[i]);
  page.family("lowtide_oom_total", "counter", "Allocations that the device had no memory for.");
  for (const auto& [device, count] : no_room_) page.add({{"device", std::to_string(index_of(device))}}, count);
  page.family("lowtide_phases_total", "counter", "Phases that were entered.");
  page.add({}, phases_);
  page.family("lowtide_phase_info", "gauge", "1 for the phase that the process is in.");
  if (!phase_.empty()) page.add({{"phase", phase_}}, 1);
  page.family("lowtide_trace_dropped_events_total", "counter", "Events for which the trace had no room.");
  page.add({}, dropped_);
  page.family("lowtide_trace_overwritten_events_total", "counter",
              "Events of the trace that made room for newer ones.");
  page.add({}, overwritten_);
}

}  // namespace lowtide

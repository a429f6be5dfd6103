// SPDX-License-Identifier: Apache-2.0
#include "tools/trace/log_profile.hpp"

#include <fmt/format.h>

#include <utility>

#include "tools/view/counted.hpp"

namespace lowtide::tools {
namespace {

constexpr std::size_t longest_line = std::size_t{1} << 16;

// The places of the series of a log.
constexpr std::size_t allocated_place = 0;
constexpr std::size_t reserved_place = 1;
constexpr std::size_t available_place = 2;

std::vector<Series> log_series() {
  return {{Series::Kind::measure, "allocated"},
          {Series::Kind::measure, "reserved"},
          {Series::Kind::available, "available"}};
}

PhaseRun run_of(const MemoryLine& line, std::uint64_t step) {
  PhaseRun run;
  run.name = line.label;
  run.step = step;
  run.peaks.resize(available_place + 1);
  run.peaks[allocated_place] = line.allocated.value_or(Bytes{});
  run.peaks[reserved_place] = line.reserved.value_or(Bytes{});
  run.peaks[available_place] = line.available.value_or(Bytes{});
  run.used = line.used.value_or(Bytes{});
  return run;
}

/// Series of which no line said anything are no columns.
void drop_unused(DeviceProfile& device) {
  for (std::size_t i = device.series.size(); i-- > 0;) {
    const bool used =
        std::any_of(device.runs.begin(), device.runs.end(), [&](const PhaseRun& run) { return run.peak(i).value > 0; });
    if (used) continue;
    const auto at = static_cast<std::ptrdiff_t>(i);
    device.series.erase(device.series.begin() + at);
    for (auto& run : device.runs) run.peaks.erase(run.peaks.begin() + at);
  }
}

}  // namespace

DeviceProfile& LogReader::place(const MemoryLine& line) {
  auto& all = profile_.processes;
  auto process = std::find_if(all.begin(), all.end(), [&](const ProcessProfile& each) {
    return each.pid == line.pid && each.host == line.host && each.name == line.process;
  });
  if (process == all.end()) {
    process = all.emplace(all.end());
    process->name = line.process;
    process->pid = line.pid;
    process->host = line.host;
    process->declared = true;
  }
  auto& devices = process->devices;
  auto device = std::find_if(devices.begin(), devices.end(),
                             [&](const DeviceProfile& each) { return each.device == line.device; });
  if (device == devices.end()) {
    device = devices.emplace(devices.end());
    device->device = line.device;
    device->series = log_series();
  }
  device->total = std::max(device->total, line.total.value_or(Bytes{}));
  return *device;
}

void LogReader::read(std::istream& log) {
  for (std::string text; std::getline(log, text);) {
    // A progress bar ends its lines with a carriage return, or begins with one behind a line.
    for (std::string_view rest = text; !rest.empty();) {
      const auto end = std::min(rest.find('\r'), rest.size());
      if (end <= longest_line) take_line(rest.substr(0, end));
      rest.remove_prefix(std::min(end + 1, rest.size()));
    }
  }
}

void LogReader::take_line(std::string_view text) {
  const auto line = parse_memory_line(text);
  if (!line) return;
  auto& device = place(*line);
  const auto whose = fmt::format("{}\n{}\n{}\n{}\n{}", line->pid, line->host, line->process, line->device, line->label);
  device.runs.push_back(run_of(*line, ++runs_[whose]));
  repeated_ += line->repeated;
  ++lines_;
}

Profile LogReader::take() && {
  for (auto& process : profile_.processes) {
    for (auto& device : process.devices) drop_unused(device);
  }
  if (repeated_ > 0) {
    profile_.notes.push_back(
        fmt::format("{} of other processes not in the log: Ray left them out", counted(repeated_, "line")));
  }
  return std::move(profile_);
}

}  // namespace lowtide::tools

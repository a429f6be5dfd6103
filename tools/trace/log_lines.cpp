// SPDX-License-Identifier: Apache-2.0
#include "tools/trace/log_lines.hpp"

#include <fmt/format.h>

#include "tools/trace/memory_line.hpp"
#include "tools/view/terminal.hpp"

namespace lowtide::tools {
namespace {

struct Line {
  std::int64_t time = 0;
  std::string text;
};

std::string prefix_of(const ProcessProfile& process, const DeviceProfile& device) {
  const auto host = process.host.empty() ? "" : ", ip=" + printable(process.host, 64);
  return fmt::format("(lowtide pid={}{}, device={}) ", process.pid, host, device.device);
}

void add_lines(std::vector<Line>& lines, const DeviceProfile& device, const Selection& selection,
               const std::string& prefix) {
  for (const auto& run : device.runs) {
    if (!counts(selection, run)) continue;
    const auto add = [&](const char* when, const Moment& moment) {
      const auto label = fmt::format("{}{} {}", prefix, when, printable(run.name, run.name.size()));
      lines.push_back(
          {moment.time, memory_line_text(label, moment.allocated, moment.reserved, moment.used, device.total)});
    };
    add("Before", run.first);
    add("After", run.last);
  }
}

}  // namespace

std::string log_lines(const Profile& profile, const Selection& selection) {
  std::size_t devices = 0;
  for (const auto& process : profile.processes) devices += process.devices.size();
  std::vector<Line> lines;
  for (const auto& process : profile.processes) {
    for (const auto& device : process.devices)
      add_lines(lines, device, selection, devices > 1 ? prefix_of(process, device) : std::string());
  }
  std::stable_sort(lines.begin(), lines.end(), [](const Line& a, const Line& b) { return a.time < b.time; });
  std::string text;
  for (const auto& line : lines) text += line.text + '\n';
  return text;
}

}  // namespace lowtide::tools

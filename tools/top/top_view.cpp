// SPDX-License-Identifier: Apache-2.0
#include "tools/top/top_view.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "tools/view/table.hpp"
#include "tools/view/terminal.hpp"

namespace lowtide::tools {
namespace {

constexpr std::string_view tag_marks = "#=+*%o";
constexpr char others_mark = '~';
constexpr char free_mark = '.';
constexpr std::size_t narrowest = 40;
constexpr std::size_t widest_bar = 120;
constexpr std::size_t most_of_a_command = 200;
constexpr std::size_t most_of_a_word = 24;

struct Share {
  std::string name;
  Bytes bytes;
  char mark = free_mark;
  Look look = Look::faint;
};

/// The largest tags have a mark each, the others one together.
std::vector<Share> shares_of(const DeviceUse& device) {
  std::vector<Share> shares;
  Bytes tagged;
  for (const auto& [name, bytes] : device.tags) {
    if (bytes.value > 0) shares.push_back({name, bytes});
    tagged += bytes;
  }
  std::stable_sort(shares.begin(), shares.end(), [](const Share& a, const Share& b) { return a.bytes > b.bytes; });
  if (shares.size() > tag_marks.size()) {
    Bytes rest;
    for (std::size_t i = tag_marks.size() - 1; i < shares.size(); ++i) rest += shares[i].bytes;
    const auto count = shares.size() - tag_marks.size() + 1;
    shares.resize(tag_marks.size() - 1);
    shares.push_back({fmt::format("{} smaller tags", count), rest});
  }
  for (std::size_t i = 0; i < shares.size(); ++i) {
    shares[i].mark = tag_marks[i];
    shares[i].look = static_cast<Look>(static_cast<int>(Look::bar_1) + static_cast<int>(i) % bar_looks);
  }
  const auto used = std::max(device.used, tagged);
  shares.push_back({"not tagged", used - tagged, others_mark, Look::plain});
  shares.push_back({"free", device.total - std::min(device.total, used), free_mark, Look::faint});
  return shares;
}

/// Its pieces end where their sums do, so that roundings do not add up.
Line bar_of(const std::vector<Share>& shares, Bytes total, std::size_t width) {
  Line line{{"[", Look::plain}};
  const auto cells = static_cast<double>(std::min(width, widest_bar) - 2);
  Bytes sum;
  long drawn = 0;
  for (const auto& share : shares) {
    sum += share.bytes;
    const auto part = static_cast<double>(sum.value) / static_cast<double>(std::max<std::uint64_t>(total.value, 1));
    const auto end = std::min(std::lround(part * cells), std::lround(cells));
    line.push_back({std::string(static_cast<std::size_t>(std::max(end - drawn, 0L)), share.mark), share.look});
    drawn = std::max(drawn, end);
  }
  line.push_back({"]", Look::plain});
  return line;
}

/// As many lines as it takes.
void add_legend(Picture& picture, const std::vector<Share>& shares, std::size_t width) {
  Line line;
  std::size_t length = 0;
  for (const auto& share : shares) {
    const auto text = fmt::format(" {} {}  ", share.name, to_text(share.bytes));
    if (length > 0 && length + text.size() + 2 > width) {
      picture.push_back(std::move(line));
      line = {};
      length = 0;
    }
    line.push_back({fmt::format(" {}", share.mark), share.look});
    line.push_back({text, Look::plain});
    length += text.size() + 2;
  }
  picture.push_back(std::move(line));
}

void add_device(Picture& picture, const DeviceUse& device, std::size_t width) {
  const auto used = fmt::format("  {} of {} used", to_text(device.used), to_text(device.total));
  picture.push_back({{device.title, Look::strong}, {used, Look::plain}});
  const auto shares = shares_of(device);
  picture.push_back(bar_of(shares, device.total, width));
  add_legend(picture, shares, width);
  picture.emplace_back();
}

std::string state_text(const ProcessStatus& process) {
  if (process.transition) {
    const auto& its = *process.transition;
    const auto step = its.step == "pause" ? "pausing" : its.step == "resume" ? "resuming" : "moving";
    if (its.total.value == 0) return step;
    return fmt::format("{} {:.0f} %", step,
                       100.0 * static_cast<double>(its.done.value) / static_cast<double>(its.total.value));
  }
  return process.gate == "open" ? "runs" : process.gate == "closed" ? "held" : printable(process.gate, most_of_a_word);
}

Look look_of(const ProcessStatus& process) {
  return process.transition ? Look::busy : process.gate == "open" ? Look::good : Look::bad;
}

std::string rate_text(const std::map<pid_t, Rates>& rates, pid_t pid) {
  const auto found = rates.find(pid);
  if (found == rates.end()) return "-";
  const auto& rate = found->second;
  const auto text = [](double bytes) { return to_text(Bytes{static_cast<std::uint64_t>(bytes)}) + "/s"; };
  if (rate.copied >= 1) return text(rate.copied);
  if (std::abs(rate.resident) < 1) return "-";
  return (rate.resident > 0 ? "+" : "-") + text(std::abs(rate.resident));
}

std::vector<std::string> row_of(const ProcessStatus& process, const std::map<pid_t, Rates>& rates) {
  Bytes resident;
  Bytes parked;
  for (const auto& tag : process.tags) {
    resident += tag.resident;
    parked += tag.parked;
  }
  std::vector<int> devices;
  for (const auto& device : process.devices) devices.push_back(device.device);
  const auto& policy = process.policy;
  return {std::to_string(process.pid),
          state_text(process),
          fmt::format("{}", fmt::join(devices, ",")),
          to_text(resident),
          to_text(parked),
          to_text(process.backup),
          rate_text(rates, process.pid),
          policy ? std::to_string(policy->waits) : "-",
          policy ? std::to_string(policy->refusals) : "-",
          policy ? printable(policy->phase, most_of_a_word) : "-",
          printable(process.command, most_of_a_command)};
}

/// The table's own text, with the states in colour.
void add_processes(Picture& picture, const MachineStatus& machine, const std::map<pid_t, Rates>& rates,
                   std::size_t width) {
  Table table({">PID", "STATE", "DEVICES", ">RESIDENT", ">PARKED", ">BACKUP", ">RATE", ">WAITS", ">REFUSED", "PHASE",
               "COMMAND"});
  std::vector<Look> looks{Look::strong};
  for (const auto& process : machine.processes) {
    table.add(row_of(process, rates));
    looks.push_back(look_of(process));
  }
  for (const auto pid : machine.silent) {
    table.add({std::to_string(pid), "no answer", "-", "-", "-", "-", "-", "-", "-", "-", "-"});
    looks.push_back(Look::bad);
  }
  const auto text = table.text();
  std::string_view rest = text;
  for (const auto look : looks) {
    const auto end = rest.find('\n');
    const auto line = rest.substr(0, std::min(end, width));
    rest.remove_prefix(end + 1);
    const auto state =
        look == Look::strong
            ? 0
            : std::min(line.find_first_not_of(' ', line.find_first_of(' ', line.find_first_not_of(' '))), line.size());
    const auto after = look == Look::strong ? line.size() : std::min(line.find("  ", state), line.size());
    picture.push_back({{std::string(line.substr(0, state)), Look::plain},
                       {std::string(line.substr(state, after - state)), look},
                       {std::string(line.substr(after)), Look::plain}});
  }
}

}  // namespace

Picture draw_machine(const MachineStatus& machine, const std::map<pid_t, Rates>& rates, std::size_t width) {
  width = std::max(width, narrowest);
  Picture picture;
  for (const auto& device : devices_of(machine)) add_device(picture, device, width);
  if (machine.processes.empty() && machine.silent.empty()) {
    picture.push_back({{"no process under Lowtide uses a GPU here", Look::faint}});
  } else {
    add_processes(picture, machine, rates, width);
  }
  for (const auto& problem : machine.problems) picture.push_back({{printable(problem, width), Look::bad}});
  return picture;
}

std::string plain_text(const Picture& picture) {
  std::string text;
  for (const auto& line : picture) {
    std::string words;
    for (const auto& piece : line) words += piece.text;
    words.erase(words.find_last_not_of(' ') + 1);
    text += words + '\n';
  }
  return text;
}

}  // namespace lowtide::tools

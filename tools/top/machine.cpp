// SPDX-License-Identifier: Apache-2.0
#include "tools/top/machine.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "tools/view/terminal.hpp"

namespace lowtide::tools {
namespace {

constexpr std::size_t most_of_a_name = 64;

std::string identity_of(const DeviceStatus& device) {
  if (!device.key.empty()) return device.key;
  return fmt::format("{} {} {}", device.device, device.name, device.total.value);
}

std::uint64_t resident_of(const ProcessStatus& process) {
  std::uint64_t sum = 0;
  for (const auto& tag : process.tags) sum += tag.resident.value;
  return sum;
}

}  // namespace

MachineStatus ask_machine() {
  MachineStatus machine;
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  machine.time = std::chrono::duration<double>(now).count();
  const auto listing = list_sockets();
  for (const auto& socket : listing.live) {
    try {
      machine.processes.push_back(ask_status(socket));
    } catch (const CommandError&) {
      machine.silent.push_back(socket.process.pid);
    }
  }
  for (const auto& problem : listing.problems) machine.problems.push_back(problem.message());
  return machine;
}

std::vector<DeviceUse> devices_of(const MachineStatus& machine) {
  std::map<std::string, DeviceUse> devices;
  for (const auto& process : machine.processes) {
    for (const auto& device : process.devices) {
      auto& use = devices[identity_of(device)];
      use.title = fmt::format("device {}  {}{}", device.device, printable(device.name, most_of_a_name),
                              process.simulated ? " (simulated)" : "");
      use.total = device.total;
      const auto free = std::min(device.free, device.total);
      use.used = std::max(use.used, device.total - free);
      for (const auto& tag : process.tags) {
        if (tag.device == device.device) use.tags[printable(tag.tag, most_of_a_name)] += tag.resident;
      }
    }
  }
  std::vector<DeviceUse> list;
  list.reserve(devices.size());
  for (auto& [identity, use] : devices) list.push_back(std::move(use));
  return list;
}

std::map<pid_t, Rates> rates_between(const MachineStatus& before, const MachineStatus& now) {
  std::map<pid_t, Rates> rates;
  const double seconds = now.time - before.time;
  if (seconds <= 0) return rates;
  for (const auto& process : now.processes) {
    const auto earlier = std::find_if(before.processes.begin(), before.processes.end(),
                                      [&](const ProcessStatus& each) { return each.pid == process.pid; });
    if (earlier == before.processes.end()) continue;
    auto& rate = rates[process.pid];
    rate.resident = (static_cast<double>(resident_of(process)) - static_cast<double>(resident_of(*earlier))) / seconds;
    if (!process.transition) continue;
    const bool same = earlier->transition && earlier->transition->step == process.transition->step &&
                      earlier->transition->done <= process.transition->done;
    const auto done = process.transition->done.value - (same ? earlier->transition->done.value : 0);
    rate.copied = static_cast<double>(done) / seconds;
  }
  return rates;
}

}  // namespace lowtide::tools

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "allocator/control/control_client.hpp"
#include "tools/processes/ask.hpp"

namespace lowtide::tools {

/// What all processes under Lowtide on this machine say at one moment.
struct MachineStatus {
  double time = 0;  ///< seconds of a clock that only goes forward
  std::vector<ProcessStatus> processes;
  std::vector<pid_t> silent;  ///< did not answer
  std::vector<std::string> problems;
};
MachineStatus ask_machine();

/// A device that one or more of the processes use.
struct DeviceUse {
  std::string title;
  Bytes total;
  Bytes used;                         ///< by everybody
  std::map<std::string, Bytes> tags;  ///< resident, of all processes
};
/// Processes number their devices for themselves: two mean the same one if their ledgers say so, or else if number,
/// name and size are the same.
std::vector<DeviceUse> devices_of(const MachineStatus& machine);

/// What changed since the moment before, in bytes a second.
struct Rates {
  double copied = 0;    ///< by the pause or resume under way
  double resident = 0;  ///< more, or less, on the devices
};
std::map<pid_t, Rates> rates_between(const MachineStatus& before, const MachineStatus& now);

}  // namespace lowtide::tools

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "allocator/base/result.hpp"
#include "backends/simulated/cuda_abi.hpp"

namespace lowtide::sim {

/// What the environment asks for; the variables are explained in sim_control.h.
struct Settings {
  int devices = 1;
  std::uint64_t memory = std::uint64_t{8} << 30;  ///< bytes of each device
  std::string device_name;
  std::string directory;  ///< empty: the devices belong to this process alone
  std::string faults;
};

/// Code::config and a message that names the variable if a value is wrong.
Result<Settings> read_settings();

}  // namespace lowtide::sim

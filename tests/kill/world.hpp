// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <set>

#include "tests/kill/family.hpp"

namespace kill_suite {

constexpr std::size_t device_bytes = std::size_t{256} << 20;

/// One simulated device and one folder of sockets, for this program and all it starts. Made once, before the first GPU
/// call.
class World {
 public:
  World();
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  /// For a process under the preload. `settings` are those of LOWTIDE_CONF.
  hazards::Environment under_lowtide(const std::string& settings) const;

  /// Free device memory. What killed processes left in the device's folder is swept by this.
  std::size_t free_bytes() const;
  /// The processes that have a share of the device, this one left out.
  std::set<pid_t> shares() const;
  /// The processes that have a socket, whether it is served or not.
  std::set<pid_t> sockets() const;
  /// What lies in the folders that is none of these.
  std::vector<std::string> strangers() const;

 private:
  std::string folder_;
};

/// `lowtide ARGUMENTS`, which runs.
hazards::Child start_command(const std::vector<std::string>& arguments);

struct Outcome {
  int exit_code = -1;  ///< -1 if a signal ended it
  std::string errors;
  nlohmann::json answer;  ///< null if it printed nothing
};
Outcome outcome_of(hazards::Child& command);
Outcome run_command(const std::vector<std::string>& arguments);

}  // namespace kill_suite

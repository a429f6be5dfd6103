// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tools/trace/accounting.hpp"
#include "tools/trace/profile.hpp"

namespace lowtide::tools {

/// Cuts the course of one process into phases, one after the other, and keeps the peaks of each on each device.
class PhaseCutter {
 public:
  /// A phase begins; the one before ends. A step begins with the first phase that the step before already had.
  void begin(std::string name, std::int64_t time);
  /// What a device of the process holds now.
  void see(const DeviceState& state, std::int64_t time);
  void wait(std::uint64_t nanoseconds);
  void end(std::int64_t time);

  /// By device. A run during which nothing was known of the device is not there.
  std::map<int, std::vector<PhaseRun>> take() &&;

 private:
  void open(const DeviceState& state, PhaseRun& run, std::int64_t time) const;

  std::string name_ = "start";
  std::uint64_t step_ = 1;
  std::int64_t start_ = 0;
  std::size_t cut_ = 0;
  std::set<std::string> of_step_;
  std::map<int, std::vector<PhaseRun>> runs_;
  std::map<int, std::size_t> cut_of_;  ///< in which phase the last run of a device lies
  std::map<int, const DeviceState*> states_;
};

/// Names for phases that nobody declared: what is parked, and the pauses and resumes themselves.
class InferredPhases {
 public:
  /// `tags` are those that the process has by now; an empty `tag` means all of them.
  std::string begin(bool pause, const std::string& tag) const;
  std::string end(bool pause, const std::string& tag, bool worked, const std::set<std::string>& tags);

 private:
  std::string resting(const std::set<std::string>& tags) const;

  std::set<std::string> parked_;
  std::string last_ = "start";
};

}  // namespace lowtide::tools

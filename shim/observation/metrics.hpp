// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <chrono>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "allocator/core/observer.hpp"
#include "shim/observation/sampler.hpp"

namespace lowtide {

/// What Prometheus is told of this process, in its text format. Every series has the process's number as a label, so
/// that the files of several processes can be read together. Thread-safe; calls may throw std::bad_alloc.
class Metrics {
 public:
  explicit Metrics(int pid) : process_("pid=\"" + std::to_string(pid) + "\"") {}

  void transition(Observer::Step step, const std::string& tag, std::chrono::nanoseconds time,
                  const Result<TransitionReport>& report);
  void refused(const Error& error);
  void waited(Observer::Wait what, std::chrono::nanoseconds time);
  void out_of_memory(DeviceId device);
  void phase(const std::string& name);
  void sampled(std::vector<DeviceSample> samples);
  /// How the trace is doing.
  void lost(std::uint64_t dropped, std::uint64_t overwritten);

  std::string text() const;

 private:
  struct Times {
    std::uint64_t count = 0;
    double seconds = 0;
    Bytes parked;
    Bytes discarded;
  };
  using TimesByTag = std::map<std::string, Times>;

  class Page;
  void write_devices(Page& page) const;
  void write_transitions(Page& page) const;
  void write_counts(Page& page) const;

  const std::string process_;  ///< the label
  mutable std::mutex mutex_;
  std::vector<DeviceSample> samples_;
  std::array<TimesByTag, 2> transitions_;      ///< by Step
  std::map<int, std::uint64_t> refusals_;      ///< by Code
  std::array<double, 5> waits_{};              ///< seconds by Wait
  std::map<DeviceId, std::uint64_t> no_room_;  ///< out-of-memory answers
  std::string phase_;
  std::uint64_t phases_ = 0;
  std::uint64_t dropped_ = 0;
  std::uint64_t overwritten_ = 0;
};

}  // namespace lowtide

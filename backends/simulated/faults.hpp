// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <bitset>
#include <mutex>
#include <optional>
#include <string_view>
#include <vector>

#include "backends/simulated/functions.hpp"

namespace lowtide::sim {

/// Counts calls, and makes those of the plan fail. Thread-safe.
class Faults {
 public:
  /// Replaces the plan and forgets all counts; false and no change if `text` is not a plan. Its grammar: sim_control.h.
  bool plan(std::string_view text);
  /// Counts a call of `function`; what it has to answer at once, or CUDA_SUCCESS if it goes on.
  CUresult next(Function function);
  std::uint64_t calls(std::string_view name) const;

 private:
  struct Rule {
    std::bitset<functions.size()> matches;
    std::uint64_t first = 0;  ///< the call that fails, from 1
    bool for_good = false;
    std::uint64_t seen = 0;
  };
  static std::optional<Rule> parse(std::string_view text);

  std::array<std::atomic<std::uint64_t>, functions.size()> calls_{};
  std::atomic<bool> planned_{false};
  std::mutex mutex_;
  std::vector<Rule> rules_;
};

}  // namespace lowtide::sim

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>

#include "allocator/policy/rules.hpp"

namespace lowtide {

class JsonWriter;

/// What came of the rules in this process: for status, whatever the mode. Not thread-safe.
class PolicyJournal {
 public:
  /// An event that broke rules.
  void note(std::span<const Breach> broken);
  void note_wait() noexcept { ++waits_; }
  void note_refusal(const std::string& why);

  /// The fields "rules", "breaches", "waits", "refusals" and "last_refusal" of an open object.
  void write(JsonWriter& json, std::span<const Rule> rules) const;

 private:
  struct Line {
    std::uint64_t count = 0;
    std::string last;
  };
  std::map<std::string, Line> lines_;  ///< by the rule's title
  std::uint64_t breaches_ = 0;
  std::uint64_t waits_ = 0;
  std::uint64_t refusals_ = 0;
  std::string last_refusal_;
};

}  // namespace lowtide

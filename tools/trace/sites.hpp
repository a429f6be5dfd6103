// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <string>

#include <vector>

#include "allocator/trace/reader.hpp"
#include "tools/trace/accounting.hpp"
#include "tools/trace/profile.hpp"

namespace lowtide::tools {

/// One frame for people: "function (file:line)", or "library+0xoffset".
struct Place {
  std::string function;
  std::string file;
  std::uint32_t line = 0;  ///< 0: not known
  bool native = false;
};

/// Names the frames of one process of a trace.
class Frames {
 public:
  Frames(const trace::Reader& reader, std::uint32_t process);
  /// The innermost first.
  std::vector<Place> places(trace::StackId stack) const;

 private:
  Place place(const trace::TracedFrame& frame) const;

  const trace::Reader& reader_;
  const std::uint32_t process_;
  const std::vector<trace::TracedModule> modules_;
};

/// Counts for one process what each call stack allocated of each tag, and how much of it lived at one time.
class SiteCounter {
 public:
  void allocated(const LiveBlock& block);
  void freed(const LiveBlock& block);
  /// The places that asked for most; stacks that end in the same one are taken together.
  std::vector<Site> top(const trace::Reader& reader, std::uint32_t process, const Accounting& accounting) const;

 private:
  struct Key {
    trace::StackId stack{};
    std::uint32_t state = 0;
    std::uint32_t series = 0;
    auto operator<=>(const Key&) const = default;
  };
  static Key key_of(const LiveBlock& block) { return {block.stack, block.state, block.series}; }
  struct Count {
    std::uint64_t allocations = 0;
    std::uint64_t live = 0;
    std::uint64_t peak = 0;
  };
  std::map<Key, Count> counts_;
};

}  // namespace lowtide::tools

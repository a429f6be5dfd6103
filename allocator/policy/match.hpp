// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "allocator/core/types.hpp"

namespace lowtide {

/// A function of Python that is being carried out.
struct PythonFrame {
  std::string module;  ///< dotted: "vllm.lora.layers"
  std::string path;    ///< its file, as Python names it
  std::string function;
};

/// What the rules are compared with. What costs a walk over the stack is asked for only when a rule wants it; an
/// answer is good until the object goes.
class AllocationFacts {
 public:
  AllocationFacts(Bytes its_size, std::uint64_t its_order, std::optional<TagName> its_phase)
      : size(its_size), order(its_order), phase(its_phase) {}
  virtual ~AllocationFacts() = default;

  const Bytes size;           ///< as requested
  const std::uint64_t order;  ///< 1 is the process's first allocation
  const std::optional<TagName> phase;

  /// File names of the libraries on the calling thread's stack, the one that asks first; neither Lowtide's, nor the
  /// driver, nor a shared CUDA runtime.
  virtual const std::vector<std::string>& libraries() = 0;
  /// The calling thread's Python frames, the innermost first; none in a thread without Python.
  virtual const std::vector<PythonFrame>& python_frames() = 0;
};

/// Who allocated, in the words that a rule takes; "" where it was not looked for or is not there.
struct Caller {
  std::string python;
  std::string function;
  std::string library;
  auto operator<=>(const Caller&) const = default;
};

/// The frame that a person would name, which is the innermost one outside of PyTorch and Lowtide, and the library that
/// asks.
Caller caller_of(AllocationFacts& facts);

/// Both ends included.
struct NumberRange {
  std::uint64_t least = 0;
  std::uint64_t most = std::numeric_limits<std::uint64_t>::max();
  bool contains(std::uint64_t number) const noexcept { return least <= number && number <= most; }
  bool operator==(const NumberRange&) const = default;
};

/// One [[match]] of the configuration: the tag of allocations for which all conditions hold. A condition that is not
/// there holds.
struct MatchRule {
  TagName tag;
  std::optional<std::string> library;   ///< a glob of a file name
  std::optional<std::string> python;    ///< a glob of a module, or of a path if it has a '/'
  std::optional<std::string> function;  ///< a glob; of the same frame as `python`
  std::optional<NumberRange> size;      ///< bytes
  std::optional<NumberRange> order;
  std::optional<TagName> phase;
};

struct RuleMatch {
  std::size_t rule = 0;  ///< counted from 1
  Caller caller;         ///< what the rule's own patterns met
};

/// The first rule whose conditions all hold.
std::optional<RuleMatch> first_match(std::span<const MatchRule> rules, AllocationFacts& facts);

/// Whether the file name matches one of the globs.
bool matches_any(std::span<const std::string> patterns, const std::string& name);

}  // namespace lowtide

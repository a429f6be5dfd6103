// SPDX-License-Identifier: Apache-2.0
#include "allocator/policy/match.hpp"

#include <fnmatch.h>

#include <algorithm>

namespace lowtide {
namespace {

bool fits(const std::string& pattern, const std::string& text) {
  return ::fnmatch(pattern.c_str(), text.c_str(), 0) == 0;
}

bool fits(const MatchRule& rule, const PythonFrame& frame) {
  if (rule.python && !fits(*rule.python, rule.python->find('/') == std::string::npos ? frame.module : frame.path))
    return false;
  return !rule.function || fits(*rule.function, frame.function);
}

/// What can be told without a walk over the stack.
bool plain_conditions_hold(const MatchRule& rule, const AllocationFacts& facts) {
  return (!rule.size || rule.size->contains(facts.size.value)) && (!rule.order || rule.order->contains(facts.order)) &&
         (!rule.phase || rule.phase == facts.phase);
}

bool library_holds(const MatchRule& rule, AllocationFacts& facts, Caller& caller) {
  if (!rule.library) return true;
  for (const auto& library : facts.libraries()) {
    if (!fits(*rule.library, library)) continue;
    caller.library = library;
    return true;
  }
  return false;
}

bool python_holds(const MatchRule& rule, AllocationFacts& facts, Caller& caller) {
  if (!rule.python && !rule.function) return true;
  for (const auto& frame : facts.python_frames()) {
    if (!fits(rule, frame)) continue;
    caller.python = frame.module;
    caller.function = frame.function;
    return true;
  }
  return false;
}

/// Code through which whatever allocates comes, and which tells nobody who it was.
bool tells_nothing(const PythonFrame& frame) {
  const auto package = frame.module.substr(0, frame.module.find('.'));
  return package == "torch" || package == "lowtide" || package == "ctypes";
}

}  // namespace

Caller caller_of(AllocationFacts& facts) {
  Caller caller;
  const auto& frames = facts.python_frames();
  const auto telling = std::find_if_not(frames.begin(), frames.end(), tells_nothing);
  if (!frames.empty()) {
    const auto& frame = telling == frames.end() ? frames.front() : *telling;
    caller.python = frame.module;
    caller.function = frame.function;
  }
  if (const auto& libraries = facts.libraries(); !libraries.empty()) caller.library = libraries.front();
  return caller;
}

std::optional<RuleMatch> first_match(std::span<const MatchRule> rules, AllocationFacts& facts) {
  for (std::size_t i = 0; i < rules.size(); ++i) {
    RuleMatch match{i + 1, {}};
    if (plain_conditions_hold(rules[i], facts) && library_holds(rules[i], facts, match.caller) &&
        python_holds(rules[i], facts, match.caller)) {
      return match;
    }
  }
  return std::nullopt;
}

bool matches_any(std::span<const std::string> patterns, const std::string& name) {
  return std::any_of(patterns.begin(), patterns.end(), [&](const std::string& pattern) { return fits(pattern, name); });
}

}  // namespace lowtide

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "allocator/trace/recorder.hpp"
#include "shim/python_layout.hpp"

namespace lowtide {

/// The call stacks of a trace. Thread-safe.
class CallStacks {
 public:
  /// `recorder` outlives it.
  CallStacks(trace::Recorder& recorder, TraceSettings::Stacks which, SymbolLookup symbol)
      : recorder_(recorder), which_(which), symbol_(symbol) {}

  /// That of the calling thread; none if they are off. Some microseconds, and some tens for one of Python.
  trace::StackId here() noexcept;

 private:
  trace::StackId python();
  trace::StackId native();
  /// Tells of the libraries that were loaded since the last time.
  void tell_modules();

  trace::Recorder& recorder_;
  const TraceSettings::Stacks which_;
  const SymbolLookup symbol_;
  std::mutex mutex_;
  unsigned long long loaded_ = 0;  ///< how often the loader had loaded something
  std::set<std::pair<std::uint64_t, std::string>> told_;
};

}  // namespace lowtide

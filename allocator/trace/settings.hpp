// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <string>

#include "allocator/base/bytes.hpp"

namespace lowtide {

/// The settings of the trace. Parsed by policy/.
struct TraceSettings {
  /// Which call stacks an allocation is recorded with. `python`: those of the interpreter, where the thread runs one.
  enum class Stacks { off, native, python };

  static constexpr Bytes smallest = 1_MiB;
  static constexpr Bytes largest = {std::uint64_t{1} << 40};

  /// An absolute path; %p is the PID, %h the host's name, %% a %. Empty: nothing is recorded.
  std::string file;
  /// What the file grows to. After that the oldest events make room for new ones.
  Bytes size = 256_MiB;
  Stacks stacks = Stacks::off;
  /// How often the devices are looked at beside what happens; 0: not.
  std::chrono::milliseconds interval{100};
};

/// What Prometheus is told of the process. Parsed by policy/.
struct MetricsSettings {
  static constexpr std::chrono::milliseconds shortest{100};

  /// As TraceSettings::file.
  std::string file;
  std::chrono::milliseconds interval{10000};
};

}  // namespace lowtide

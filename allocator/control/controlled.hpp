// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

#include "allocator/base/result.hpp"
#include "allocator/core/report.hpp"
#include "allocator/core/types.hpp"

namespace lowtide {

/// What the control socket can ask of its process; the runtime implements it. Thread-safe.
class Controlled {
 public:
  virtual ~Controlled() = default;

  /// The "status" object of docs/control-protocol.md.
  virtual std::string status_json() = 0;
  /// With `hold`, closes the gate first and waits up to `drain` (default: the setting) for the process to come to rest.
  virtual Result<TransitionReport> pause(std::optional<TagName> tag, bool hold,
                                         std::optional<std::chrono::milliseconds> drain,
                                         const ProgressSink& progress) = 0;
  virtual Result<TransitionReport> resume(std::optional<TagName> tag, const ProgressSink& progress) = 0;
  virtual Status set(std::string_view key, std::string_view value) = 0;
};

}  // namespace lowtide

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "allocator/base/result.hpp"
#include "allocator/core/report.hpp"
#include "allocator/core/types.hpp"

namespace lowtide {

/// Whether who asked for a pause does not want it any more. Asked again and again while the process comes to rest.
using CalledOff = std::function<bool()>;

/// Which of a phase's steps: those with which it begins, which give memory back and need nobody, or all.
enum class PhasePart : std::uint8_t { first_pauses, all };

/// What the control socket can ask of its process; the runtime implements it. Thread-safe.
class Controlled {
 public:
  virtual ~Controlled() = default;

  /// The "status" object of docs/control-protocol.md.
  virtual std::string status_json() = 0;
  /// With `hold`, closes the gate first and waits up to `drain` (default: the setting) for the process to come to rest.
  /// If it is called off until then, the hold is undone and the error is Code::refused; a transition that has begun
  /// runs to its end.
  virtual Result<TransitionReport> pause(std::optional<TagName> tag, bool hold,
                                         std::optional<std::chrono::milliseconds> drain, const ProgressSink& progress,
                                         const CalledOff& called_off) = 0;
  virtual Result<TransitionReport> resume(std::optional<TagName> tag, const ProgressSink& progress) = 0;
  /// Gives back the host memory that is kept for the next pause. Waits for a transition that runs.
  virtual Result<TrimReport> trim() = 0;
  /// Enters a phase of the configuration: this process's steps are carried out, with a hold of what is paused if asked
  /// for. Waits for a transition that runs.
  virtual Status enter_phase(const TagName& name, PhasePart part, bool hold) = 0;
  /// The "why" object of docs/control-protocol.md: what stands in the way of a resume of `tag`.
  virtual std::string why_json(const TagName& tag) = 0;
  virtual Status set(std::string_view key, std::string_view value) = 0;
};

}  // namespace lowtide

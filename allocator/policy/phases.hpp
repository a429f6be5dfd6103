// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "allocator/policy/rules.hpp"

namespace lowtide {

/// Which side holds both copies while memory is handed over.
enum class PeakOn : std::uint8_t { host, device };
const char* to_text(PeakOn side) noexcept;

/// How dropped content comes back: not at all, by an update of the engine, or by a reload of the model.
enum class Refill : std::uint8_t { none, sync, reload };
const char* to_text(Refill refill) noexcept;

enum class StepVerb : std::uint8_t { pause, resume, update };

/// One step of a phase: "pause train_optim,train_grads". An update is the program's own: a phase waits for it.
struct PhaseStep {
  StepVerb verb = StepVerb::pause;
  std::vector<TagSelector> tags;

  static std::optional<PhaseStep> parse(std::string_view text);
  bool operator==(const PhaseStep&) const = default;
};

std::string to_text(const PhaseStep& step);

/// A named point of the user's loop, and what leads to it: lists, of which the plan makes steps, or the steps
/// themselves.
struct Phase {
  TagName name;
  std::vector<TagSelector> pause;
  std::vector<TagSelector> resume;
  std::vector<PhaseStep> steps;
  unsigned line = 0;  ///< of the file; 0: none
};

/// What a plan has to know of a tag.
struct PlannedTag {
  TagSelector tag;
  Action action = Action::offload;
  Refill refill = Refill::none;
};

/// The steps of a phase. Where they are not given: pauses first, then resumes, each after those that it needs, and
/// after each resume of a tag that was dropped and is refilled its update. With the peak on the device, what is copied
/// to the host is paused only when the updates are done, and before what needs none is resumed. `tags` says what is not
/// Action::offload without a refill.
std::vector<PhaseStep> plan(const Phase& phase, std::span<const Rule> rules, std::span<const PlannedTag> tags,
                            PeakOn peak_on);

/// What a report calls a process whose program declared no phase: "all resident", "without kv_cache, lora" or
/// "all parked"; as `lowtide trace report` names it too.
std::string inferred_phase(const Holdings& holdings);

}  // namespace lowtide

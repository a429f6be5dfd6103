// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tools/demo/actor.hpp"

namespace lowtide::tools {

/// How much memory the demo's processes have.
struct DemoSizes {
  Bytes weights;
  Bytes kv_cache;
  Bytes lora;
  Bytes trainer;
};

/// One row of the demo's table: who holds what at the end of a phase.
struct DemoPhase {
  std::string name;
  std::string took;                           ///< of its pause or resume; "" if it has none
  std::vector<std::vector<TagStatus>> roles;  ///< the tags of the engine, then of the trainer
  Bytes device_used;
};

struct DemoResult {
  std::vector<DemoPhase> phases;
  Bytes checked;  ///< bytes read back and compared
  std::string device;
  Bytes device_total;
  bool held = false;  ///< the engine stood still while it was paused, and went on afterwards
};

/// Plays one step of colocated reinforcement learning: an engine (weights, KV cache, LoRA) and a trainer take turns on
/// device 0, each paused and resumed from outside while it works, and every byte that must survive is checked.
/// `environment` is what the processes get besides ours; `said` is called with a line as each phase begins. Throws
/// CommandError on the first thing that is not as it should be.
DemoResult play(const DemoSizes& sizes, const Actor::Environment& environment,
                const std::function<void(const std::string&)>& said);

}  // namespace lowtide::tools

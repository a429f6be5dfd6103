// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <map>
#include <optional>

#include "allocator/core/types.hpp"

namespace lowtide {

/// What is done with the blocks of a tag.
struct TagSettings {
  Action pause = Action::offload;
  Fill fill = Fill::none;
  Place store = Place::host;
  PausedAccess paused_access = PausedAccess::fault;
  Content content = Content::persistent;
  Freshness initial = Freshness::valid;  ///< of a new block: valid, or stale where its owner writes it by an update
  std::optional<Coverage> coverage;      ///< nothing: CoreSettings::coverage
  bool may_move = false;                 ///< its owner follows blocks that come back at another address
};

/// The settings of the core. Parsed by policy/; the defaults are those of a process without any configuration.
struct CoreSettings {
  std::map<TagName, TagSettings, std::less<>> tags;  ///< tags not named here: TagSettings{}
  /// What is done with the blocks of `label`.
  TagSettings of(const Label& label) const {
    const auto found = tags.find(label.tag);
    TagSettings settings = found == tags.end() ? TagSettings{} : found->second;
    if (label.treatment) {
      settings.pause = label.treatment->pause;
      settings.store = label.treatment->store;
      settings.content = Content::scratch;
      settings.initial = Freshness::valid;
    }
    if (!settings.coverage) settings.coverage = coverage;
    return settings;
  }
  Coverage coverage = Coverage::off;  ///< of tags that say nothing of it
  /// How long a transition waits for free device memory, or for room that others will give; nothing: nobody said, and
  /// who asks decides.
  std::optional<std::chrono::milliseconds> device_wait;
  /// Joined extents may hold this much of a region for no block before no more are joined.
  Bytes device_slack = 256_MiB;
  std::chrono::milliseconds gate_drain{10'000};  ///< how long a hold waits for the process to come to rest
};

}  // namespace lowtide

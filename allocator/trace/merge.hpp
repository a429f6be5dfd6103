// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <span>

#include "allocator/trace/file_input.hpp"

namespace lowtide::trace {

/// A file of those that are merged.
struct MergeInput {
  const FileInput& input;
  std::span<const ChunkPlace> chunks;
  std::uint64_t to_realtime;  ///< what is added to the time of its events
};

/// Calls `visit` with the events of all files in the order of their times. Only the chunks that overlap at a time are
/// looked into.
void merge(std::span<const MergeInput> inputs, DamageList& damage, const std::function<void(const TraceEvent&)>& visit);

}  // namespace lowtide::trace

// SPDX-License-Identifier: Apache-2.0
#include "allocator/trace/chunk_cursor.hpp"

#include <algorithm>

namespace lowtide::trace {

bool ChunkCursor::next() {
  const auto generation = generation_of(place_.claim);
  for (;;) {
    if (at_ == window_.size() && !fill()) return false;
    const auto& event = window_[at_++];
    if (event.generation != generation || event.op == Op::none) continue;
    if (event.op == Op::thread) {
      thread_ = static_cast<std::uint32_t>(event.value);
      continue;
    }
    ++events_;
    if (is_known(event.op)) return true;
  }
}

bool ChunkCursor::fill() {
  window_.resize(std::min(window_events, events_per_chunk - slots_));
  at_ = 0;
  const auto start = place_.offset + sizeof(ChunkHeader) + slots_ * sizeof(Event);
  const auto got = input_.read(start, window_.data(), window_.size() * sizeof(Event)) / sizeof(Event);
  const bool unchanged = input_.is_unchanged(place_);
  window_.resize(unchanged ? got : 0);
  slots_ += window_.size();
  if (!window_.empty()) return true;
  if (unchanged) finish();
  return false;
}

void ChunkCursor::finish() {
  // That the file ends early was told already.
  if (state_of(place_.claim) != ChunkState::closed || events_ == place_.events || slots_ < events_per_chunk) return;
  damage_.add(
      input_.process().path, place_.offset,
      "of " + std::to_string(place_.events) + " events in this chunk " + std::to_string(events_) + " are whole");
}

}  // namespace lowtide::trace

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "allocator/trace/file_input.hpp"

namespace lowtide::trace {

/// Goes through the events of one chunk. Holds a window of a few KiB of it.
class ChunkCursor {
 public:
  /// The three outlive the cursor.
  ChunkCursor(const FileInput& input, const ChunkPlace& place, DamageList& damage)
      : input_(input), place_(place), damage_(damage) {}

  /// To the next event that is there; false at the end.
  bool next();
  /// After a next() that was true.
  const Event& event() const noexcept { return window_[at_ - 1]; }
  std::uint32_t thread() const noexcept { return thread_; }

 private:
  static constexpr std::size_t window_events = 128;
  bool fill();
  void finish();

  const FileInput& input_;
  const ChunkPlace& place_;
  DamageList& damage_;
  std::vector<Event> window_;
  std::size_t at_ = 0;     ///< of the window's
  std::size_t slots_ = 0;  ///< of the chunk that were in windows
  std::uint64_t events_ = 0;
  std::uint32_t thread_ = 0;
};

}  // namespace lowtide::trace

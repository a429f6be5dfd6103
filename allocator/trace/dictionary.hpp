// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mutex>
#include <span>
#include <string>
#include <string_view>

#include "allocator/trace/intern_table.hpp"
#include "allocator/trace/recorder.hpp"
#include "allocator/trace/trace_file.hpp"

namespace lowtide::trace {

/// The dictionary of a trace file: what events name by an id. Thread-safe; what is known already is found without a
/// lock. What has no room is counted in the header.
class Dictionary {
 public:
  explicit Dictionary(TraceFile& file) noexcept : file_(file) {}

  StringId intern(std::string_view text) noexcept;
  StackId stack(std::span<const Frame> frames) noexcept;
  void module(const Module& module) noexcept;
  void device(const Device& device) noexcept;

 private:
  struct Node {
    std::uint32_t parent = 0;
    Frame frame;
    bool operator==(const Node&) const = default;
  };

  std::uint32_t frame(const Node& node) noexcept;
  /// Appends `entry` as one of `kind`. Without ids of that kind, `id` is 0.
  template <class Entry>
  void append_entry(EntryKind kind, const Entry& entry) noexcept;
  /// Whether there was room. Under the lock.
  bool append(EntryKind kind, std::uint32_t id, std::span<const char> payload) noexcept;
  void drop() noexcept { file_.header().dropped_entries.fetch_add(1, std::memory_order_relaxed); }

  TraceFile& file_;
  std::mutex mutex_;  ///< of appending
  std::optional<Chunk> chunk_;
  std::size_t used_ = 0;  ///< of its content
  std::uint32_t last_string_ = 0;
  std::uint32_t last_frame_ = 0;
  InternTable<std::string, 1024> strings_;
  InternTable<Node, 16384> frames_;
};

}  // namespace lowtide::trace

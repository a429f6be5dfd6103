// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <compare>
#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include "allocator/core/types.hpp"
#include "allocator/policy/match.hpp"

namespace lowtide {

enum class TagSource : std::uint8_t { scope, rule, default_tag };
const char* to_text(TagSource source) noexcept;

/// What gave an allocation its tag.
struct Origin {
  TagName tag;
  TagSource source = TagSource::scope;
  std::size_t rule = 0;  ///< counted from 1; 0 if it was none
  Caller caller;         ///< what the rule's patterns met
  auto operator<=>(const Origin&) const = default;
};

/// Who asked for untagged memory, and for how much of it since the process began.
struct Untagged {
  Caller caller;
  std::uint64_t allocations = 0;
  Bytes asked;
};

/// Who allocated: numbers that blocks carry instead of an Origin, and the largest untagged callers. Bounded in size.
/// Thread-safe.
class Origins {
 public:
  static constexpr std::size_t most_with_caller = 256;
  static constexpr std::size_t most_untagged = 32;

  /// The number of `origin`; without its caller once there are too many. May throw std::bad_alloc.
  OriginId id_of(Origin origin);
  /// By their numbers.
  std::map<OriginId, Origin> all() const;

  /// A caller beyond the most takes the place of the smallest, whose numbers go to those without a name. May throw
  /// std::bad_alloc.
  void note_untagged(const Caller& caller, Bytes size);
  /// The largest first; last, without a caller, the sum of those that were left out, if any.
  std::vector<Untagged> untagged() const;

  /// The calling thread runs Python whose frames cannot be read.
  void note_hidden_python() noexcept { hidden_python_.store(true, std::memory_order_relaxed); }
  bool hidden_python() const noexcept { return hidden_python_.load(std::memory_order_relaxed); }

 private:
  mutable std::mutex mutex_;
  std::map<Origin, OriginId> ids_;
  std::size_t with_caller_ = 0;
  std::vector<Untagged> untagged_;
  Untagged left_out_;
  std::atomic<bool> hidden_python_{false};
};

}  // namespace lowtide

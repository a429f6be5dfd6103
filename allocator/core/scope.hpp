// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>

#include "allocator/base/result.hpp"
#include "allocator/core/types.hpp"

namespace lowtide {

/// The labels that allocations carry, of one thread or of the process: a stack of fixed depth. Used by one thread at a
/// time.
class ScopeStack {
 public:
  static constexpr std::size_t most = 32;

  Status begin(const Label& label) noexcept {
    if (depth_ == most) return fail(Code::invalid, "scopes are nested 32 deep: the end of one is missing somewhere");
    labels_[depth_++] = label;
    return {};
  }
  Status end() noexcept {
    if (depth_ == 0) return fail(Code::invalid, "lowtide_scope_end without lowtide_scope_begin on this thread");
    --depth_;
    return {};
  }
  /// Ends the innermost one of a tag.
  Status end(const TagName& tag) noexcept {
    const auto all = std::span(labels_).first(depth_);
    const auto last = std::find_if(all.rbegin(), all.rend(), [&](const Label& label) { return label.tag == tag; });
    if (last == all.rend())
      return fail(Error::format(Code::invalid, "a scope of %s ends that did not begin", tag.c_str()));
    std::copy(last.base(), all.end(), std::prev(last.base()));
    --depth_;
    return {};
  }
  /// The innermost one, null outside of all scopes.
  const Label* current() const noexcept { return depth_ == 0 ? nullptr : &labels_[depth_ - 1]; }

 private:
  std::array<Label, most> labels_{};
  std::size_t depth_ = 0;
};

}  // namespace lowtide

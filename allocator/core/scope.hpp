// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>

#include "allocator/base/result.hpp"
#include "allocator/core/types.hpp"

namespace lowtide {

/// The labels that one thread's allocations carry: a stack of fixed depth. Used by its own thread only.
class ScopeStack {
 public:
  static constexpr std::size_t most = 32;

  Status begin(const Label& label) noexcept {
    if (depth_ == most) return fail(Code::invalid, "scopes are nested 32 deep: lowtide_scope_end is missing somewhere");
    labels_[depth_++] = label;
    return {};
  }
  Status end() noexcept {
    if (depth_ == 0) return fail(Code::invalid, "lowtide_scope_end without lowtide_scope_begin on this thread");
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

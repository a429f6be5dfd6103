// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>

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
    if (depth_ == 0)
      return fail(
          Code::invalid,
          "a scope ends that did not begin: lowtide_scope_end belongs to a lowtide_scope_begin of the same thread, "
          "lowtide_process_scope_end to a lowtide_process_scope_begin");
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

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "allocator/policy/match.hpp"
#include "shim/python_frames.hpp"

namespace lowtide {

/// The calling thread as the rules see it. Each walk over its stack is made once, at the first question: some
/// microseconds for the libraries, some tens for the Python frames. Only where a device allocation follows.
class CallingThread final : public AllocationFacts {
 public:
  using AllocationFacts::AllocationFacts;

  /// A library with an embedded runtime, as NCCL has, is its own caller.
  const std::vector<std::string>& libraries() override;
  const std::vector<PythonFrame>& python_frames() override;
  /// Whether the library that asks matches one of `patterns`, globs of a file name.
  bool is_called_by(std::span<const std::string> patterns);
  /// The thread runs Python, and a walk that was made found no way to read its frames.
  bool python_is_hidden() const noexcept { return python_ && python_->hidden; }

 private:
  std::optional<std::vector<std::string>> libraries_;
  std::optional<PythonWalk> python_;
};

}  // namespace lowtide

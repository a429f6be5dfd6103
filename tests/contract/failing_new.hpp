// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "backends/cuda/driver.hpp"

namespace lowtide::test {

/// This program's operator new, made to fail on the calling thread while one of these lives.
class FailingNew {
 public:
  /// The `nth` allocation from now fails, counted from 1, and with `for_good` all later ones.
  FailingNew(std::uint64_t nth, bool for_good) noexcept;
  FailingNew(const FailingNew&) = delete;
  FailingNew& operator=(const FailingNew&) = delete;
  ~FailingNew();

  /// Whether any allocation failed so far.
  bool failed() const noexcept;
};

/// A driver table whose calls always have memory: what fails is our own operator new. In a sanitizer's build the
/// simulated driver would share it.
cuda::Driver sheltered_from_failing_new(const cuda::Driver& real);

}  // namespace lowtide::test

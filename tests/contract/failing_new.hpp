// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

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

}  // namespace lowtide::test

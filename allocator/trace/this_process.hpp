// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>

#include "allocator/base/result.hpp"

namespace lowtide::trace {

/// Tells a process from its fork children, at the cost of one load and whatever made the child: a page that the kernel
/// blanks in a child, before it runs.
class ThisProcess {
 public:
  /// Code::unsupported where the kernel does not know of such pages (before Linux 4.14).
  static Result<ThisProcess> make() noexcept;
  ThisProcess(ThisProcess&& other) noexcept;
  ThisProcess& operator=(ThisProcess&&) = delete;
  ~ThisProcess();

  /// False in a fork child of the process that made the object.
  bool is_here() const noexcept { return page_->load(std::memory_order_relaxed); }

 private:
  explicit ThisProcess(std::atomic<bool>* page) noexcept : page_(page) {}
  std::atomic<bool>* page_;
};

}  // namespace lowtide::trace

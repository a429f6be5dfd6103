// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>

#include "allocator/core/gate.hpp"
#include "allocator/core/scope.hpp"
#include "allocator/runtime.hpp"

namespace lowtide {

/// What one thread has of Lowtide. Made at its first need, given back when it ends.
struct ThreadState {
  GateVisitor* visitor = nullptr;   ///< null until the runtime runs, or for want of memory
  GateVisitor** at_hand = nullptr;  ///< where the thread's doors keep the visitor, for the open path without a call
  ScopeStack scopes;
  std::array<char, 512> last_error{};
};

/// What the C API needs of the process it lives in; the composition root answers.
class ApiHost {
 public:
  virtual ~ApiHost() = default;
  /// Null when memory is short.
  virtual ThreadState* thread() noexcept = 0;
  /// Null before the first GPU call, and where Lowtide keeps out of the process.
  virtual Runtime* runtime() noexcept = 0;
  /// A setting made before there is a runtime is kept for it.
  virtual Status set(std::string_view key, std::string_view value) = 0;
  /// Device memory under the thread's scope or the default tag, else the vendor's plain memory.
  virtual Result<void*> allocate(std::size_t bytes, int device) = 0;
  virtual Status free(void* address, int device) = 0;
  /// Of what threads allocate that have no scope of their own.
  virtual Status begin_process_scope(const TagName& tag) = 0;
  virtual Status end_process_scope(const TagName& tag) = 0;
  /// Also carries out the steps of a phase that the configuration declares.
  virtual Status enter_phase(const TagName& name) = 0;

  /// Of the runtime, also of one that is yet to come.
  Relocations relocations;
};

/// What lowtide_last_error() answers in the calling thread from now on.
void remember_error(const char* message) noexcept;

/// Defined by the composition root.
ApiHost& api_host() noexcept;

}  // namespace lowtide

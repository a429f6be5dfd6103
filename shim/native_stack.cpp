// SPDX-License-Identifier: Apache-2.0
#include "shim/native_stack.hpp"

#include <unwind.h>

namespace lowtide {
namespace {

_Unwind_Reason_Code add_frame(_Unwind_Context* context, void* argument) {
  auto& stack = *static_cast<NativeStack*>(argument);
  if (stack.is_full()) return _URC_END_OF_STACK;
  // A return address may lie behind the end of its function.
  stack.add(_Unwind_GetIP(context) - 1);
  return _URC_NO_REASON;
}

}  // namespace

NativeStack NativeStack::here() noexcept {
  NativeStack stack;
  _Unwind_Backtrace(&add_frame, &stack);
  return stack;
}

}  // namespace lowtide

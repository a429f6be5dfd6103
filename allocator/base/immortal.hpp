// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <new>
#include <utility>

namespace lowtide {

/// Storage for one object that is never destroyed. Libraries of the host still free device memory in their own static
/// destructors, in an order nobody controls; what serves those calls must outlive them all.
template <class T>
class Immortal {
 public:
  template <class... Arguments>
  T& construct(Arguments&&... arguments) {
    return *new (storage_) T(std::forward<Arguments>(arguments)...);
  }

 private:
  alignas(T) unsigned char storage_[sizeof(T)];
};

}  // namespace lowtide

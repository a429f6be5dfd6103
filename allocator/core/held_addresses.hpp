// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/mman.h>

#include <cstdint>
#include <utility>

#include "allocator/core/types.hpp"

namespace lowtide {

/// Part of the process's address space with nothing behind it, which no other mapping gets. Device addresses are the
/// process's own: what a driver has given up, the next mmap of any thread may take.
class HeldAddresses {
 public:
  HeldAddresses() = default;
  /// Holds `range`, or nothing if somebody has some of it.
  explicit HeldAddresses(AddressRange range) noexcept {
    void* const wanted = reinterpret_cast<void*>(range.start.value);
    constexpr int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE;
    void* const got = ::mmap(wanted, range.size.value, PROT_NONE, flags, -1, 0);
    if (got == MAP_FAILED) return;
    range_ = {{reinterpret_cast<std::uintptr_t>(got)}, range.size};
    if (got != wanted) *this = {};  // a kernel before 4.17 takes the address for a hint
  }
  HeldAddresses(HeldAddresses&& other) noexcept : range_(std::exchange(other.range_, {})) {}
  HeldAddresses& operator=(HeldAddresses&& other) noexcept {
    HeldAddresses old(std::move(*this));
    range_ = std::exchange(other.range_, {});
    return *this;
  }
  explicit operator bool() const noexcept { return range_.size > Bytes{}; }
  ~HeldAddresses() {
    if (*this) ::munmap(reinterpret_cast<void*>(range_.start.value), range_.size.value);
  }

 private:
  AddressRange range_{};
};

}  // namespace lowtide

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace lowtide {

/// Addresses in the calling functions of a thread, ours included, the innermost first. Some microseconds.
class NativeStack {
 public:
  static constexpr std::size_t most = 64;
  static NativeStack here() noexcept;
  std::span<const std::uintptr_t> addresses() const noexcept { return std::span(addresses_).first(count_); }
  void add(std::uintptr_t address) noexcept {
    if (count_ < most) addresses_[count_++] = address;
  }
  bool is_full() const noexcept { return count_ == most; }

 private:
  std::array<std::uintptr_t, most> addresses_;
  std::size_t count_ = 0;
};

}  // namespace lowtide

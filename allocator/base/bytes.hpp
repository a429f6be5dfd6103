// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace lowtide {

/// A number of bytes. A type of its own so that a size is never taken for an address or a count.
struct Bytes {
  std::uint64_t value = 0;

  constexpr auto operator<=>(const Bytes&) const = default;
  constexpr Bytes& operator+=(Bytes other) { return value += other.value, *this; }
  constexpr Bytes& operator-=(Bytes other) { return value -= other.value, *this; }
  friend constexpr Bytes operator+(Bytes a, Bytes b) { return {a.value + b.value}; }
  friend constexpr Bytes operator-(Bytes a, Bytes b) { return {a.value - b.value}; }
  friend constexpr Bytes operator*(Bytes a, std::uint64_t n) { return {a.value * n}; }
};

constexpr Bytes operator""_KiB(unsigned long long n) { return {n << 10}; }
constexpr Bytes operator""_MiB(unsigned long long n) { return {n << 20}; }
constexpr Bytes operator""_GiB(unsigned long long n) { return {n << 30}; }

/// The smallest multiple of `unit` that is not below `size`. `unit` is not zero and the sum does not overflow.
constexpr Bytes round_up(Bytes size, Bytes unit) { return {(size.value + unit.value - 1) / unit.value * unit.value}; }

/// IEC text for people: "512 B", "2.00 MiB", "19.5 GiB". Three significant digits.
std::string to_text(Bytes size);

}  // namespace lowtide

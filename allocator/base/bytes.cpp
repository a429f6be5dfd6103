// SPDX-License-Identifier: Apache-2.0
#include "allocator/base/bytes.hpp"

#include <array>
#include <cstdio>

namespace lowtide {

std::string to_text(Bytes size) {
  constexpr std::array units{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  auto amount = static_cast<double>(size.value);
  std::size_t unit = 0;
  // The bounds are those of the rounded text: no "1024 KiB", no "10.00 MiB".
  for (; amount >= (unit == 0 ? 1024.0 : 1023.5) && unit + 1 < units.size(); ++unit) amount /= 1024.0;
  const int decimals = unit == 0 || amount >= 99.95 ? 0 : amount >= 9.995 ? 1 : 2;
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.*f %s", decimals, amount, units[unit]);
  return text.data();
}

}  // namespace lowtide

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backends/simulated/memory.hpp"

namespace lowtide::sim {

/// One end of a copy. `device`: the address is checked, as memory of a device, a reservation or page-locked memory;
/// else it is any memory of the host.
struct Side {
  Address address = 0;
  bool device = false;
};

/// A copy of `height` rows of `width` bytes; a plain copy is one row.
struct Copy {
  Side to;
  Side from;
  std::uint64_t width = 0;
  std::uint64_t height = 1;
  std::uint64_t to_pitch = 0;
  std::uint64_t from_pitch = 0;
};

/// Writes `count` elements of `element` bytes: 1, 2 or 4.
struct Fill {
  Address to = 0;
  std::uint64_t count = 0;
  unsigned element = 1;
  unsigned value = 0;
};

CUresult run_copy(Memory& memory, const Actor& actor, const Copy& copy);
CUresult run_fill(Memory& memory, const Actor& actor, const Fill& fill);

}  // namespace lowtide::sim

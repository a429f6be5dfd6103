// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "allocator/core/backend.hpp"

namespace lowtide::portable {

/// One promise of the port, asked of a backend.
struct Check {
  const char* name;
  Status status;
};

/// The core of what allocator/core/backend.hpp promises of memory and bytes: for the contract suite, and for owners of
/// devices that the suite never ran on. What the backend does not claim to do is left out. Needs an attached context
/// and some granules of free memory; what others do on the device changes no answer.
std::vector<Check> check_contract(Backend& backend);

/// What a backend gives on this device, in numbers.
struct Measures {
  Bytes largest_handle;  ///< of sizes that double, up to half of what was free
  Bytes cycle;           ///< what the times below are of; 0 if there was no room for a cycle
  bool moved = false;    ///< the address could not be had back, so nothing was measured from `get` on
  std::chrono::duration<double> copy_out{};
  std::chrono::duration<double> give{};  ///< unmap, release, and what keeps the address
  std::chrono::duration<double> get{};   ///< create, map, access
  std::chrono::duration<double> copy_in{};
};

/// Finds the largest handle, and plays a pause and a resume of a block of up to 1 GiB, through registered host memory.
Result<Measures> measure(Backend& backend);

}  // namespace lowtide::portable

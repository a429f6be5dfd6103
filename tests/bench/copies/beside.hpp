// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace copies {

/// What a thread saw that allocated and freed blocks of 2 MiB of `tag` all the time; with an empty tag, by bare calls.
struct AllocationTimes {
  double median_ms, max_ms, free_max_ms;
  std::size_t count;
};
/// Such a thread runs from before `work` begins until it has ended; what `work` throws is thrown on.
AllocationTimes allocate_during(const std::string& tag, const std::function<void()>& work);

/// Gets host memory as a first pause does, by bare calls: many threads touch slabs of 32 MiB, this one registers them.
void pin_bare(std::size_t bytes);

/// Memory of the system that is gone while a child is there that was forked and writes nothing.
struct ForkCost {
  std::int64_t added;
  double milliseconds;  ///< of the fork itself
};
ForkCost fork_cost();

}  // namespace copies

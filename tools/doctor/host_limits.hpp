// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "allocator/base/bytes.hpp"

namespace lowtide::tools {

/// A memory limit of a control group that this process is in, or of one of its ancestors.
struct CgroupLimit {
  std::string file;  ///< the path of the limit
  Bytes limit;
  Bytes used;        ///< without file cache, which gives way
  bool hard = true;  ///< false for memory.high: above it the group is slowed down, not killed

  Bytes room() const { return used < limit ? limit - used : Bytes{}; }
};

struct HostLimits {
  std::optional<Bytes> available;  ///< MemAvailable
  std::vector<CgroupLimit> cgroups;

  /// What can still be used: the least of all of them; nothing if none is known.
  std::optional<Bytes> room() const;
};

/// Reads cgroup version 1 and 2 and /proc/meminfo below `root` ("" but for tests). What cannot be read is left out.
HostLimits read_host_limits(const std::string& root);

}  // namespace lowtide::tools

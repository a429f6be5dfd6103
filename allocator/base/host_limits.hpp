// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "allocator/base/bytes.hpp"

namespace lowtide {

/// A memory limit of a control group that this process is in, or of one of its ancestors: the one above which processes
/// are killed (memory.max, version 1's limit_in_bytes), or the one above which they come to a near halt (memory.high).
/// Version 1's soft limit is neither and left out.
struct CgroupLimit {
  std::string folder;  ///< the control group's
  std::string file;    ///< the path of the limit
  Bytes limit;
  /// Without file cache, active or not: the kernel takes that back before it kills or holds up anybody, and a process
  /// that has read its weights from a file would else seem to have filled its group with them.
  Bytes used;

  Bytes room() const noexcept { return used < limit ? limit - used : Bytes{}; }
};

struct HostLimits {
  std::optional<Bytes> available;    ///< MemAvailable
  std::vector<CgroupLimit> cgroups;  ///< from the process's own group to the top

  /// What can still be used: the least of all of them; nothing if none is known.
  std::optional<Bytes> room() const noexcept;
};

/// Reads cgroup version 1 and 2 and /proc/meminfo below `root` ("" but for tests). What cannot be read is left out.
HostLimits read_host_limits(const std::string& root) noexcept;

}  // namespace lowtide

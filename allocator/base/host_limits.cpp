// SPDX-License-Identifier: Apache-2.0
#include "allocator/base/host_limits.hpp"

#include <algorithm>
#include <array>

#include "allocator/base/cgroup.hpp"

namespace lowtide {
namespace {

/// What the two versions of control groups call the same things.
struct Dialect {
  CgroupVersion version;
  std::array<const char*, 2> limits;  // nullptr: there is no second
  const char* used;
  std::array<const char*, 2> file_cache;  // in memory.stat
};

constexpr Dialect version_1{CgroupVersion::v1,
                            {"memory.limit_in_bytes", nullptr},
                            "memory.usage_in_bytes",
                            {"total_inactive_file", "total_active_file"}};
constexpr Dialect version_2{
    CgroupVersion::v2, {"memory.max", "memory.high"}, "memory.current", {"inactive_file", "active_file"}};

Bytes used_in(const std::string& group, const Dialect& dialect) {
  const auto used = leading_number(text_of_file(group + dialect.used)).value_or(0);
  const auto statistics = text_of_file(group + "memory.stat");
  std::uint64_t cache = 0;
  for (const char* name : dialect.file_cache) cache += number_after(statistics, name).value_or(0);
  return Bytes{used > cache ? used - cache : 0};
}

void add_limits_of(const std::string& folder, const Dialect& dialect, std::vector<CgroupLimit>& limits) {
  // Version 1 says "no limit" by a number near the largest there is.
  constexpr std::uint64_t no_limit = std::uint64_t{1} << 60;
  const auto group = folder + '/';
  std::optional<Bytes> used;  // read only where there is a limit
  for (const char* name : dialect.limits) {
    if (name == nullptr) continue;
    const auto limit = leading_number(text_of_file(group + name));
    if (!limit || *limit >= no_limit) continue;
    if (!used) used = used_in(group, dialect);
    limits.push_back({folder, group + name, Bytes{*limit}, *used});
  }
}

void read_into(HostLimits& limits, const std::string& root) {
  if (const auto kibibytes = number_after(text_of_file(root + "/proc/meminfo"), "MemAvailable:")) {
    limits.available = Bytes{*kibibytes << 10};
  }
  for (const auto& dialect : {version_2, version_1}) {
    for (const auto& folder : cgroup_folders(root, dialect.version, "memory")) {
      add_limits_of(folder, dialect, limits.cgroups);
    }
  }
}

}  // namespace

std::optional<Bytes> HostLimits::room() const noexcept {
  auto least = available;
  for (const auto& cgroup : cgroups) least = std::min(least.value_or(cgroup.room()), cgroup.room());
  return least;
}

HostLimits read_host_limits(const std::string& root) noexcept {
  HostLimits limits;
  try {
    read_into(limits, root);
  } catch (...) {  // no memory for a few lines of text: what was read so far is the answer
  }
  return limits;
}

}  // namespace lowtide

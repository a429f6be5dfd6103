// SPDX-License-Identifier: Apache-2.0
#include "allocator/base/cpu_share.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>

#include "allocator/base/cgroup.hpp"

namespace lowtide {
namespace {

unsigned processors_by_affinity() noexcept {
  const auto usable = processors_of_thread();
  return usable ? static_cast<unsigned>(CPU_COUNT_S(sizeof *usable, usable->data())) : 1;
}

/// Whole processors; a number that no machine has if there is no quota.
std::uint64_t processors(std::optional<std::uint64_t> quota, std::optional<std::uint64_t> period) noexcept {
  if (!quota || !period || *period == 0) return std::numeric_limits<std::uint64_t>::max();
  return *quota / *period;
}

std::uint64_t processors_by_quota(const std::string& root) {
  auto least = std::numeric_limits<std::uint64_t>::max();
  for (const auto& folder : cgroup_folders(root, CgroupVersion::v2, "cpu")) {
    const auto text = text_of_file(folder + "/cpu.max");  // "QUOTA PERIOD", "max PERIOD"
    const auto blank = text.find(' ');
    if (blank == std::string::npos) continue;
    least = std::min(least, processors(leading_number(text), leading_number(text.c_str() + blank + 1)));
  }
  for (const auto& folder : cgroup_folders(root, CgroupVersion::v1, "cpu")) {
    // -1, which is no quota, is no number here.
    least = std::min(least, processors(leading_number(text_of_file(folder + "/cpu.cfs_quota_us")),
                                       leading_number(text_of_file(folder + "/cpu.cfs_period_us"))));
  }
  return least;
}

}  // namespace

std::optional<Processors> processors_of_thread() noexcept {
  Processors usable{};
  if (::sched_getaffinity(0, sizeof usable, usable.data()) != 0) return std::nullopt;
  return usable;
}

unsigned usable_processors(const std::string& root) noexcept {
  std::uint64_t count = processors_by_affinity();
  try {
    count = std::min(count, processors_by_quota(root));
  } catch (...) {  // no memory for a few lines of text: the affinity alone is the answer
  }
  return static_cast<unsigned>(std::max<std::uint64_t>(count, 1));
}

}  // namespace lowtide

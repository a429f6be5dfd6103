// SPDX-License-Identifier: Apache-2.0
#include "tools/doctor/host_limits.hpp"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace lowtide::tools {
namespace {

namespace fs = std::filesystem;

// What the two versions of control groups call the same things.
struct Dialect {
  std::vector<std::pair<const char*, bool>> limits;  // file, whether it is hard
  const char* used;
  const char* file_cache;  // in memory.stat
};

const Dialect version_1{{{"memory.limit_in_bytes", true}, {"memory.soft_limit_in_bytes", false}},
                        "memory.usage_in_bytes",
                        "total_inactive_file"};
const Dialect version_2{{{"memory.max", true}, {"memory.high", false}}, "memory.current", "inactive_file"};

std::optional<std::uint64_t> parse_number(std::string_view text) {
  std::uint64_t number = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), number);
  if (result.ec != std::errc{}) return std::nullopt;
  return number;
}

// Nothing for "max" and for what cannot be read.
std::optional<std::uint64_t> number_in(const fs::path& file) {
  std::ifstream stream(file);
  std::string word;
  stream >> word;
  return parse_number(word);
}

// The number after a name at the start of a line: "inactive_file 4096", "MemAvailable:  4096 kB".
std::optional<std::uint64_t> number_after(const fs::path& file, const std::string& name) {
  std::ifstream stream(file);
  for (std::string line; std::getline(stream, line);) {
    std::istringstream words(line);
    std::string first;
    std::string second;
    words >> first >> second;
    if (first == name) return parse_number(second);
  }
  return std::nullopt;
}

void add_limits_of(const fs::path& group, const Dialect& dialect, std::vector<CgroupLimit>& limits) {
  // Version 1 says "no limit" by a number near the largest there is.
  constexpr std::uint64_t no_limit = std::uint64_t{1} << 60;
  const auto used = number_in(group / dialect.used).value_or(0);
  const auto cache = number_after(group / "memory.stat", dialect.file_cache).value_or(0);
  for (const auto& [name, hard] : dialect.limits) {
    const auto limit = number_in(group / name);
    if (!limit || *limit >= no_limit) continue;
    limits.push_back({(group / name).native(), Bytes{*limit}, Bytes{used > cache ? used - cache : 0}, hard});
  }
}

struct Mount {
  std::string root;   // the part of the hierarchy that is mounted
  std::string point;  // where
};

// The mount that has the memory controller of `version`.
std::optional<Mount> find_mount(const std::string& root, int version) {
  std::ifstream stream(root + "/proc/self/mountinfo");
  for (std::string line; std::getline(stream, line);) {
    const auto dash = line.find(" - ");
    if (dash == std::string::npos) continue;
    std::istringstream left(line);
    std::istringstream right(line.substr(dash + 3));
    std::string skipped;
    Mount mount;
    left >> skipped >> skipped >> skipped >> mount.root >> mount.point;
    std::string type;
    std::string options;
    right >> type >> skipped >> options;
    if (version == 2 && type == "cgroup2") return mount;
    if (version == 1 && type == "cgroup" && (',' + options + ',').find(",memory,") != std::string::npos) return mount;
  }
  return std::nullopt;
}

// This process's group in the hierarchy of `version`: the last field of a line of /proc/self/cgroup.
std::optional<std::string> find_group(const std::string& root, int version) {
  std::ifstream stream(root + "/proc/self/cgroup");
  for (std::string line; std::getline(stream, line);) {
    const auto first = line.find(':');
    const auto second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const auto controllers = line.substr(first + 1, second - first - 1);
    const bool fits =
        version == 2 ? controllers.empty() : (',' + controllers + ',').find(",memory,") != std::string::npos;
    if (fits) return line.substr(second + 1);
  }
  return std::nullopt;
}

void add_hierarchy(const std::string& root, int version, std::vector<CgroupLimit>& limits) {
  const auto mount = find_mount(root, version);
  const auto group = find_group(root, version);
  if (!mount || !group) return;
  std::string below = *group;
  // In a container only a part of the hierarchy is mounted, and the group may be named from the real top.
  if (mount->root != "/" && below.starts_with(mount->root)) below = below.substr(mount->root.size());
  const fs::path top(root + mount->point);
  auto path = (top / fs::path(below).relative_path()).lexically_normal();
  std::error_code ignored;
  if (!fs::exists(path, ignored)) path = top;
  for (;; path = path.parent_path()) {
    add_limits_of(path, version == 2 ? version_2 : version_1, limits);
    if (path == top || path.native().size() <= top.native().size()) return;
  }
}

}  // namespace

std::optional<Bytes> HostLimits::room() const {
  auto least = available;
  for (const auto& cgroup : cgroups) {
    if (cgroup.hard) least = std::min(least.value_or(cgroup.room()), cgroup.room());
  }
  return least;
}

HostLimits read_host_limits(const std::string& root) {
  HostLimits limits;
  if (const auto kibibytes = number_after(root + "/proc/meminfo", "MemAvailable:"))
    limits.available = Bytes{*kibibytes << 10};
  add_hierarchy(root, 2, limits.cgroups);
  add_hierarchy(root, 1, limits.cgroups);
  return limits;
}

}  // namespace lowtide::tools

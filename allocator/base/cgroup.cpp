// SPDX-License-Identifier: Apache-2.0
#include "allocator/base/cgroup.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <charconv>

#include "allocator/base/unique_fd.hpp"

namespace lowtide {
namespace {

/// Takes the text up to `separator` off the front of `rest`.
std::string_view take(std::string_view& rest, char separator) noexcept {
  const auto end = rest.find(separator);
  const auto part = rest.substr(0, end);
  rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
  return part;
}

bool lists(std::string_view comma_separated, std::string_view word) noexcept {
  while (!comma_separated.empty()) {
    if (take(comma_separated, ',') == word) return true;
  }
  return false;
}

struct Mount {
  std::string_view root;   // the part of the hierarchy that is mounted
  std::string_view point;  // where
};

std::optional<Mount> find_mount(std::string_view mountinfo, CgroupVersion version, std::string_view controller) {
  while (!mountinfo.empty()) {
    auto left = take(mountinfo, '\n');
    const auto dash = left.find(" - ");
    if (dash == std::string_view::npos) continue;
    auto right = left.substr(dash + 3);
    for (int skipped = 0; skipped < 3; ++skipped) take(left, ' ');
    Mount mount;
    mount.root = take(left, ' ');
    mount.point = take(left, ' ');
    const auto type = take(right, ' ');
    take(right, ' ');
    const bool fits = version == CgroupVersion::v2 ? type == "cgroup2" : type == "cgroup" && lists(right, controller);
    if (fits) return mount;
  }
  return std::nullopt;
}

/// This process's group: the last field of a line of /proc/self/cgroup.
std::optional<std::string_view> find_group(std::string_view cgroups, CgroupVersion version,
                                           std::string_view controller) {
  while (!cgroups.empty()) {
    auto line = take(cgroups, '\n');
    take(line, ':');
    const auto controllers = take(line, ':');
    if (version == CgroupVersion::v2 ? controllers.empty() : lists(controllers, controller)) return line;
  }
  return std::nullopt;
}

}  // namespace

std::string text_of_file(const std::string& path) {
  // More than any of these files has: the mounts of a node with thousands of containers are about a mebibyte.
  constexpr std::size_t most = std::size_t{8} << 20;
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::string text;
  std::array<char, 4096> part;
  while (file && text.size() < most) {
    const auto count = ::read(file.get(), part.data(), part.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    text.append(part.data(), static_cast<std::size_t>(count));
  }
  return text;
}

std::optional<std::uint64_t> leading_number(std::string_view text) noexcept {
  std::uint64_t number = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), number);
  if (result.ec != std::errc{}) return std::nullopt;
  return number;
}

std::optional<std::uint64_t> number_after(std::string_view text, std::string_view name) noexcept {
  while (!text.empty()) {
    auto line = take(text, '\n');
    if (take(line, ' ') != name) continue;
    while (line.starts_with(' ')) line.remove_prefix(1);
    return leading_number(line);
  }
  return std::nullopt;
}

std::vector<std::string> cgroup_folders(const std::string& root, CgroupVersion version, std::string_view controller) {
  const auto mounts = text_of_file(root + "/proc/self/mountinfo");
  const auto groups = text_of_file(root + "/proc/self/cgroup");
  const auto mount = find_mount(mounts, version, controller);
  auto group = find_group(groups, version, controller);
  if (!mount || !group) return {};
  // In a container only a part of the hierarchy is mounted, and the group may be named from the real top.
  if (mount->root != "/" && group->starts_with(mount->root)) group->remove_prefix(mount->root.size());
  const std::string top = root + std::string(mount->point);
  std::string folder = top;
  while (!group->empty()) {
    const auto part = take(*group, '/');
    if (!part.empty()) folder.append("/").append(part);
  }
  // A group outside what is mounted ("/../other") has no folder here; the limits of the top hold for it all the same.
  if (folder.find("/..", top.size()) != std::string::npos || ::access(folder.c_str(), F_OK) != 0) folder = top;
  std::vector<std::string> folders{folder};
  while (folder.size() > top.size()) {
    folder.resize(folder.rfind('/'));
    folders.push_back(folder);
  }
  return folders;
}

}  // namespace lowtide

// SPDX-License-Identifier: Apache-2.0
#include "tools/processes/process_tree.hpp"

#include <fmt/format.h>
#include <pwd.h>
#include <sys/stat.h>

#include <charconv>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string_view>
#include <vector>

namespace lowtide::tools {
namespace {

std::optional<pid_t> parse_pid(std::string_view text) {
  pid_t pid = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), pid);
  if (error != std::errc{} || rest != text.data() + text.size()) return std::nullopt;
  return pid;
}

std::optional<pid_t> parent_of(const std::filesystem::path& process) {
  std::ifstream file(process / "stat");
  std::string line;
  std::getline(file, line);
  // After the command's name, which may hold anything: state, parent.
  const auto bracket = line.rfind(')');
  if (bracket == std::string::npos) return std::nullopt;
  std::istringstream rest(line.substr(bracket + 1));
  std::string state;
  pid_t parent = 0;
  rest >> state >> parent;
  return parent;
}

std::multimap<pid_t, pid_t> children_by_parent() {
  std::multimap<pid_t, pid_t> children;
  std::error_code error;
  std::filesystem::directory_iterator entry("/proc", error);
  for (; !error && entry != std::filesystem::directory_iterator{}; entry.increment(error)) {
    const auto pid = parse_pid(entry->path().filename().native());
    if (!pid) continue;
    if (const auto parent = parent_of(entry->path())) children.emplace(*parent, *pid);
  }
  return children;
}

}  // namespace

std::set<pid_t> with_descendants(pid_t root) {
  const auto children = children_by_parent();
  std::set<pid_t> found{root};
  std::vector<pid_t> to_visit{root};
  while (!to_visit.empty()) {
    const auto [first, last] = children.equal_range(to_visit.back());
    to_visit.pop_back();
    for (auto child = first; child != last; ++child) {
      if (found.insert(child->second).second) to_visit.push_back(child->second);
    }
  }
  return found;
}

std::optional<uid_t> owner_of(pid_t pid) {
  std::ifstream status(fmt::format("/proc/{}/status", pid));
  for (std::string line; std::getline(status, line);) {
    if (!line.starts_with("Uid:")) continue;
    std::istringstream fields(line.substr(4));
    uid_t real = 0;
    uid_t effective = 0;
    fields >> real >> effective;
    return effective;
  }
  return std::nullopt;
}

std::string user_text(uid_t user) {
  const auto* entry = ::getpwuid(user);
  return entry == nullptr ? fmt::format("{}", user) : fmt::format("{} ({})", entry->pw_name, user);
}

}  // namespace lowtide::tools

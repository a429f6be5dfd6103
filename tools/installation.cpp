// SPDX-License-Identifier: Apache-2.0
#include "tools/installation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "tools/exit_codes.hpp"

namespace lowtide::tools {
namespace {

namespace fs = std::filesystem;

constexpr const char* preload_name = "liblowtide_preload.so";

std::vector<fs::path> folders() {
  const auto own = own_path().parent_path();
  const auto lib = own.parent_path() / "lib";
  return {lib / "lowtide", lib, own};
}

std::vector<std::string> entries_of(std::string_view ld_preload) {
  std::vector<std::string> entries;
  for (std::size_t start = 0; start <= ld_preload.size();) {
    const auto end = std::min(ld_preload.find_first_of(": ", start), ld_preload.size());
    if (end > start) entries.emplace_back(ld_preload.substr(start, end - start));
    start = end + 1;
  }
  return entries;
}

bool is_ours(const std::string& entry) { return fs::path(entry).filename() == preload_name; }

}  // namespace

fs::path own_path() { return fs::read_symlink("/proc/self/exe"); }

std::optional<fs::path> find_installed(const std::string& name) {
  std::error_code ignored;
  for (const auto& folder : folders()) {
    if (fs::exists(folder / name, ignored)) return folder / name;
  }
  return std::nullopt;
}

std::string preload_library() {
  const auto library = find_installed(preload_name);
  if (!library) {
    std::string looked;
    for (const auto& folder : folders()) looked += (looked.empty() ? "" : ", ") + folder.native();
    throw CommandError(ExitCode::failed, fmt::format("{} is not installed: looked in {}", preload_name, looked));
  }
  if (library->native().find_first_of(" :\t\n") != std::string::npos) {
    throw CommandError(
        ExitCode::usage,
        fmt::format("LD_PRELOAD cannot name \"{}\": its path has a space or a colon; install Lowtide elsewhere",
                    library->native()));
  }
  return library->native();
}

std::string preloads_of_others(std::string_view ld_preload) {
  std::string others;
  for (const auto& entry : entries_of(ld_preload)) {
    if (!is_ours(entry)) others += (others.empty() ? "" : ":") + entry;
  }
  return others;
}

std::string with_preload(std::string_view ld_preload, const std::string& library) {
  const auto entries = entries_of(ld_preload);
  if (std::any_of(entries.begin(), entries.end(), is_ours)) return std::string(ld_preload);
  return ld_preload.empty() ? library : fmt::format("{}:{}", ld_preload, library);
}

}  // namespace lowtide::tools

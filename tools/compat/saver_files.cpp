// SPDX-License-Identifier: Apache-2.0
#include "tools/compat/saver_files.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <system_error>

#include "tools/exit_codes.hpp"

namespace lowtide::tools {
namespace {

constexpr std::string_view prefix = "torch_memory_saver_hook_mode_";
/// Named by each of our libraries, and by no other.
constexpr std::string_view our_mark = "lowtide_door_table_v1_get";
/// Exported by every version of torch_memory_saver.
constexpr std::string_view their_mark = "tms_set_interesting_region";

[[noreturn]] void give_up(const std::filesystem::path& path, const char* what, const std::error_code& error) {
  throw CommandError(ExitCode::failed, fmt::format("{} cannot be {}: {}", path.native(), what, error.message()));
}

}  // namespace

SaverFile::Kind kind_of(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(stream), {}};
  if (!stream.good() && !stream.eof()) return SaverFile::Kind::unknown;
  if (!bytes.starts_with("\x7f"
                         "ELF"))
    return SaverFile::Kind::unknown;
  if (bytes.find(our_mark) != std::string::npos) return SaverFile::Kind::ours;
  return bytes.find(their_mark) != std::string::npos ? SaverFile::Kind::original : SaverFile::Kind::unknown;
}

FolderLock::FolderLock(const std::filesystem::path& folder)
    : folder_(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  if (folder_) (void)::flock(folder_.get(), LOCK_EX);
}

std::vector<SaverFile> find_saver_files(const std::filesystem::path& folder) {
  std::error_code error;
  std::vector<SaverFile> files;
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const auto path = entry->path();
    const auto name = path.filename().native();
    if (!name.starts_with(prefix)) continue;
    if (name.ends_with(".so")) files.push_back({path, kind_of(path)});
    std::error_code ignored;
    if (name.ends_with(".so.original") &&
        !std::filesystem::exists(std::filesystem::path(path).replace_extension(), ignored))
      files.push_back({std::filesystem::path(path).replace_extension(), SaverFile::Kind::missing});
  }
  if (error) give_up(folder, "read", error);
  std::sort(files.begin(), files.end(), [](const auto& a, const auto& b) { return a.path < b.path; });
  return files;
}

void copy_over(const std::filesystem::path& from, const std::filesystem::path& to) {
  const std::filesystem::path whole = fmt::format("{}.{}", to.native(), ::getpid());
  std::error_code error;
  std::filesystem::copy_file(from, whole, std::filesystem::copy_options::overwrite_existing, error);
  if (!error) std::filesystem::rename(whole, to, error);
  if (!error) return;
  std::error_code ignored;
  std::filesystem::remove(whole, ignored);
  give_up(to, "written", error);
}

}  // namespace lowtide::tools

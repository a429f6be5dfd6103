// SPDX-License-Identifier: Apache-2.0
#include "shim/observation/metrics_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "allocator/base/unique_fd.hpp"

namespace lowtide {
namespace {

bool write_all(int fd, std::string_view text) noexcept {
  while (!text.empty()) {
    const auto written = ::write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

/// Of the file itself, not of one that it links to.
UniqueFd open_to_look(const std::string& path) noexcept {
  return UniqueFd(above_standard(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW)));
}

/// Whether what is at `path` may be replaced: nothing, an empty file or a text of metrics, whoever wrote it. A variable
/// that names /dev/null, or somebody's file, must not cost it.
Status check_place(const std::string& path) {
  constexpr std::string_view begin = "# HELP lowtide_";
  struct stat about {};
  if (::lstat(path.c_str(), &about) != 0) return {};  // what is wrong with it shows when it is written
  if (!S_ISREG(about.st_mode))
    return fail(Error::format(Code::config, "metrics.file %s is not a file, and is not replaced", path.c_str()));
  if (about.st_size == 0) return {};
  const auto fd = open_to_look(path);
  std::array<char, begin.size()> text{};
  if (::pread(fd.get(), text.data(), text.size(), 0) == static_cast<ssize_t>(begin.size()) &&
      std::string_view(text.data(), text.size()) == begin)
    return {};
  return fail(Error::format(Code::config,
                            "metrics.file %s: there is a file of %lld bytes that has no metrics of Lowtide, and it is "
                            "not replaced",
                            path.c_str(), static_cast<long long>(about.st_size)));
}

}  // namespace

Status MetricsFile::replace(std::string_view text) {
  constexpr mode_t readable_by_all = 0644;
  const std::lock_guard lock(mutex_);
  if (removed_) return {};
  if (auto place = check_place(path_); !place) return place;
  const UniqueFd fd(
      above_standard(::open(next_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, readable_by_all)));
  if (fd.get() >= 0 && write_all(fd.get(), text) && ::rename(next_.c_str(), path_.c_str()) == 0) {
    ours_ = FileIdentity(fd.get());
    return {};
  }
  const int error = errno;
  if (fd.get() >= 0) ::unlink(next_.c_str());
  return fail(Error::format(Code::config, "metrics.file %s cannot be written (%zu bytes): %s", path_.c_str(),
                            text.size(), std::strerror(error)));
}

void MetricsFile::remove() noexcept {
  const std::lock_guard lock(mutex_);
  removed_ = true;
  if (ours_.is_behind(open_to_look(path_).get())) ::unlink(path_.c_str());
}

}  // namespace lowtide

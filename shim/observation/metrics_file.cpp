// SPDX-License-Identifier: Apache-2.0
#include "shim/observation/metrics_file.hpp"

#include <fcntl.h>
#include <unistd.h>

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

}  // namespace

Status MetricsFile::replace(std::string_view text) {
  constexpr mode_t readable_by_all = 0644;
  const std::lock_guard lock(mutex_);
  if (removed_) return {};
  const UniqueFd fd(
      above_standard(::open(next_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, readable_by_all)));
  if (fd.get() >= 0 && write_all(fd.get(), text) && ::rename(next_.c_str(), path_.c_str()) == 0) return {};
  const int error = errno;
  if (fd.get() >= 0) ::unlink(next_.c_str());
  return fail(Error::format(Code::config, "metrics.file %s cannot be written (%zu bytes): %s", path_.c_str(),
                            text.size(), std::strerror(error)));
}

void MetricsFile::remove() noexcept {
  const std::lock_guard lock(mutex_);
  removed_ = true;
  ::unlink(path_.c_str());
}

}  // namespace lowtide

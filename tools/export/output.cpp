// SPDX-License-Identifier: Apache-2.0
#include "tools/export/output.hpp"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "tools/exit_codes.hpp"

namespace lowtide::tools {
namespace {

/// Where the bytes go until all are there. A rename would put a file in the place of /dev/null, and /dev/stdout or
/// >(gzip) have no folder for a draft.
std::string draft_of(const std::string& path) {
  struct stat about {};
  const bool replaces = path != "-" && (::lstat(path.c_str(), &about) != 0 || S_ISREG(about.st_mode));
  return replaces ? fmt::format("{}.{}.part", path, ::getpid()) : "";
}

}  // namespace

Output::Output(std::string path) : path_(std::move(path)), draft_(draft_of(path_)) {
  file_ = path_ == "-" ? stdout : std::fopen((draft_.empty() ? path_ : draft_).c_str(), "wbe");
  if (file_ == nullptr) fail("made");
}

Output::~Output() {
  if (file_ == nullptr || file_ == stdout) return;
  std::fclose(file_);
  if (!draft_.empty()) ::unlink(draft_.c_str());
}

void Output::fail(const char* what) const {
  const auto name = path_ == "-" ? "stdout" : path_;
  throw CommandError(ExitCode::failed, fmt::format("{} cannot be {}: {}", name, what, std::strerror(errno)));
}

void Output::write(std::string_view bytes) {
  if (std::fwrite(bytes.data(), 1, bytes.size(), file_) != bytes.size()) fail("written");
}

void Output::finish() {
  if (std::fflush(file_) != 0) fail("written");
  if (file_ == stdout) return;
  const bool closed = std::fclose(std::exchange(file_, nullptr)) == 0;
  if (closed && (draft_.empty() || std::rename(draft_.c_str(), path_.c_str()) == 0)) return;
  const int reason = errno;
  if (!draft_.empty()) ::unlink(draft_.c_str());
  errno = reason;
  fail("written");
}

}  // namespace lowtide::tools

// SPDX-License-Identifier: Apache-2.0
#include "tools/export/output.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "tools/exit_codes.hpp"

namespace lowtide::tools {

Output::Output(std::string path)
    : path_(std::move(path)), draft_(path_ == "-" ? "" : fmt::format("{}.{}.part", path_, ::getpid())) {
  file_ = draft_.empty() ? stdout : std::fopen(draft_.c_str(), "wbe");
  if (file_ == nullptr) fail("made");
}

Output::~Output() {
  if (draft_.empty() || file_ == nullptr) return;
  std::fclose(file_);
  ::unlink(draft_.c_str());
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
  if (draft_.empty()) return;
  const bool closed = std::fclose(std::exchange(file_, nullptr)) == 0;
  if (closed && std::rename(draft_.c_str(), path_.c_str()) == 0) return;
  const int reason = errno;
  ::unlink(draft_.c_str());
  errno = reason;
  fail("written");
}

}  // namespace lowtide::tools

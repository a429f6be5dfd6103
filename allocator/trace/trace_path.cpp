// SPDX-License-Identifier: Apache-2.0
#include "allocator/trace/trace_path.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "allocator/trace/format.hpp"

namespace lowtide::trace {
namespace {

std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "host";
  return name.data();
}

Error unusable(const std::string& path, const char* call, int error) {
  return Error::format(Code::config, "the trace cannot be written to %s: %s: %s", path.c_str(), call,
                       std::strerror(error));
}

struct flock whole_file() {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  return lock;
}

/// Takes away what is at `path` if a trace may stand there instead. A file that somebody records to is never cut: its
/// process has mapped it, and would end at its next event.
Status make_way(const std::string& path) {
  // Without waiting for the other end of a pipe.
  const UniqueFd fd(::open(path.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC));
  if (!fd) return errno == ENOENT ? Status() : fail(unusable(path, "open", errno));
  struct stat about {};
  if (::fstat(fd.get(), &about) != 0 || !S_ISREG(about.st_mode))
    return fail(Error::format(Code::config, "the trace cannot be written to %s: it is not a file", path.c_str()));
  std::uint64_t magic = 0;
  const bool is_trace = ::pread(fd.get(), &magic, sizeof magic, 0) == sizeof magic && magic == file_magic;
  if (!is_trace && about.st_size != 0)
    return fail(Error::format(Code::config,
                              "the trace cannot be written to %s: there is a file of %lld bytes that is "
                              "no trace, and it is not replaced",
                              path.c_str(), static_cast<long long>(about.st_size)));
  auto lock = whole_file();
  if (::fcntl(fd.get(), F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK)
    return fail(Error::format(Code::busy,
                              "the trace cannot be written to %s: process %d records there; with %%p in "
                              "the path each process has its own",
                              path.c_str(), lock.l_pid));
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) return fail(unusable(path, "unlink", errno));
  return {};
}

}  // namespace

Result<std::string> expand_path(std::string_view pattern) {
  if (!pattern.starts_with('/'))
    return fail(
        Error::format(Code::config, "the trace's path \"%.200s\" is not absolute", std::string(pattern).c_str()));
  std::string path;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] != '%') {
      path += pattern[i];
      continue;
    }
    const char letter = ++i < pattern.size() ? pattern[i] : '\0';
    if (letter == 'p')
      path += std::to_string(::getpid());
    else if (letter == 'h')
      path += host_name();
    else if (letter == '%')
      path += '%';
    else
      return fail(Error::format(Code::config, "the trace's path %.200s has a %% that is not %%p, %%h or %%%%",
                                std::string(pattern).c_str()));
  }
  return path;
}

Result<UniqueFd> make_trace_file(const std::string& path) {
  constexpr int attempts = 8;  // others may do the same at this moment
  for (int i = 0; i < attempts; ++i) {
    if (const auto way = make_way(path); !way) return fail(way.error());
    UniqueFd fd(
        above_standard(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, S_IRUSR | S_IWUSR)));
    if (!fd && errno == EEXIST) continue;
    if (!fd) return fail(unusable(path, "open", errno));
    // Of this process alone: a fork child does not have it. Where the file system has no locks, nobody is kept out.
    auto lock = whole_file();
    (void)::fcntl(fd.get(), F_SETLK, &lock);
    return fd;
  }
  return fail(Error::format(Code::busy, "the trace cannot be written to %s: others make that file, %d times in a row",
                            path.c_str(), attempts));
}

}  // namespace lowtide::trace

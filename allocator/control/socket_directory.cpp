// SPDX-License-Identifier: Apache-2.0
#include "allocator/control/socket_directory.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>

#include "allocator/base/env.hpp"
#include "allocator/base/unique_fd.hpp"

namespace lowtide {
namespace {

// So that the kernel can bind every name in it: the largest PID, and a start time of centuries.
const std::size_t longest_directory = sizeof(sockaddr_un::sun_path) - sizeof "/4194304-999999999999.sock";

// "link/" would be followed where "link" is refused.
std::string without_trailing_slashes(std::string_view path) {
  while (path.size() > 1 && path.ends_with('/')) path.remove_suffix(1);
  return std::string(path);
}

std::string in_tmp(uid_t user) { return "/tmp/lowtide-" + std::to_string(user); }

std::optional<std::string> in_xdg() {
  const auto directory = env("XDG_RUNTIME_DIR");
  if (!directory) return std::nullopt;
  return without_trailing_slashes(*directory) + "/lowtide";
}

Failure refuse(const std::string& path, const char* why) {
  return fail(Error::format(Code::refused, "runtime folder %s %s", path.c_str(), why));
}

Failure refuse(const std::string& path, const char* what, int error) {
  return fail(Error::format(Code::refused, "runtime folder %s %s: %s", path.c_str(), what, std::strerror(error)));
}

std::vector<std::string> names_in(const char* directory) {
  std::vector<std::string> names;
  const std::unique_ptr<DIR, int (*)(DIR*)> stream(::opendir(directory), ::closedir);
  if (!stream) return names;
  while (const auto* entry = ::readdir(stream.get())) names.emplace_back(entry->d_name);
  return names;
}

bool is_number(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

void add_those_of_all_users(std::vector<std::string>& directories) {
  constexpr std::string_view prefix = "lowtide-";
  for (const auto& name : names_in("/tmp")) {
    if (name.starts_with(prefix) && is_number(name.substr(prefix.size()))) directories.push_back("/tmp/" + name);
  }
  for (const auto& name : names_in("/run/user")) {
    const auto path = "/run/user/" + name + "/lowtide";
    if (is_number(name) && ::access(path.c_str(), F_OK) == 0) directories.push_back(path);
  }
}

// The field of /proc/PID/stat that has `count` fields before it in `fields`.
std::optional<std::uint64_t> number_after(std::string_view fields, int count) {
  for (int i = 0; i < count; ++i) {
    const auto space = fields.find(' ');
    if (space == std::string_view::npos) return std::nullopt;
    fields.remove_prefix(space + 1);
  }
  std::uint64_t number = 0;
  const auto result = std::from_chars(fields.data(), fields.data() + fields.size(), number);
  return result.ec == std::errc{} ? std::optional(number) : std::nullopt;
}

struct ProcessStat {
  pid_t pid;
  std::uint64_t threads;
  std::uint64_t start_time;
  bool ended;
};

// A /proc/PID/stat.
std::optional<ProcessStat> read_stat(const std::string& path) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return std::nullopt;
  char text[1024];
  const auto length = ::read(file.get(), text, sizeof text);
  if (length <= 0) return std::nullopt;
  std::string_view rest(text, static_cast<std::size_t>(length));
  const auto pid = number_after(rest, 0);
  // The second field is the command's name in brackets, and may itself hold brackets and spaces.
  const auto bracket = rest.rfind(')');
  if (!pid || bracket == std::string_view::npos || rest.size() < bracket + 3) return std::nullopt;
  rest.remove_prefix(bracket + 2);
  const auto threads = number_after(rest, 20 - 3);
  const auto start_time = number_after(rest, 22 - 3);
  if (!threads || !start_time) return std::nullopt;
  return ProcessStat{static_cast<pid_t>(*pid), *threads, *start_time, rest[0] == 'Z' || rest[0] == 'X'};
}

bool belongs_to_this_user(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == ::geteuid();
}

}  // namespace

std::vector<std::string> socket_directories() {
  std::vector<std::string> all;
  if (const auto chosen = env("LOWTIDE_RUNTIME_DIR")) all.push_back(without_trailing_slashes(*chosen));
  if (const auto xdg = in_xdg()) all.push_back(*xdg);
  all.push_back(in_tmp(::geteuid()));
  if (::geteuid() == 0) add_those_of_all_users(all);
  std::vector<std::string> distinct;
  for (auto& path : all) {
    if (std::find(distinct.begin(), distinct.end(), path) == distinct.end()) distinct.push_back(std::move(path));
  }
  return distinct;
}

Result<bool> check_directory(const std::string& path, Owner owner) {
  // What is checked is what was opened, and O_NOFOLLOW refuses a link that somebody else may turn.
  const UniqueFd directory(::open(path.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
  if (!directory && errno == ENOENT) return false;
  if (!directory) return refuse(path, "cannot be opened", errno);
  struct stat status {};
  if (::fstat(directory.get(), &status) != 0) return refuse(path, "cannot be read", errno);
  if (S_ISLNK(status.st_mode)) return refuse(path, "is a symbolic link: not used");
  if (!S_ISDIR(status.st_mode)) return refuse(path, "is not a folder");
  const auto user = ::geteuid();
  if (status.st_uid != user && (user != 0 || owner == Owner::this_user)) {
    return fail(Error::format(Code::refused, "runtime folder %s belongs to user %u, not to user %u: not used",
                              path.c_str(), status.st_uid, user));
  }
  if ((status.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    return fail(Error::format(Code::refused, "runtime folder %s can be written by others (mode %04o): chmod 700 it",
                              path.c_str(), status.st_mode & 07777U));
  }
  return true;
}

Status give_mode(const std::string& path, unsigned mode) {
  const UniqueFd own(::open(path.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
  struct stat status {};
  if (!own || ::fstat(own.get(), &status) != 0) return refuse(path, "cannot be opened", errno);
  if (S_ISLNK(status.st_mode) || status.st_uid != ::geteuid()) return refuse(path, "was replaced by somebody");
  if ((status.st_mode & 0777U) == mode) return {};
  // fchmod takes no descriptor that was opened without the right to read, which a umask can take from its maker too.
  const auto itself = "/proc/self/fd/" + std::to_string(own.get());
  if (::chmod(itself.c_str(), mode) != 0) return refuse(path, "cannot be given its mode", errno);
  return {};
}

Result<std::string> make_directory(std::string_view name) {
  const auto path = without_trailing_slashes(name);
  if (!path.starts_with('/')) return refuse(path, "is not an absolute path");
  if (path.size() > longest_directory) {
    return fail(Error::format(Code::refused,
                              "runtime folder %.100s... has a path of %zu bytes; a socket in it needs one "
                              "of at most %zu",
                              path.c_str(), path.size(), longest_directory));
  }
  const bool made = ::mkdir(path.c_str(), S_IRWXU) == 0;
  if (!made && errno != EEXIST) return refuse(path, "cannot be made", errno);
  if (made) {
    if (auto status = give_mode(path, S_IRWXU); !status) return fail(status.error());
  }
  const auto there = check_directory(path, Owner::this_user);
  if (!there) return fail(there.error());
  if (::faccessat(AT_FDCWD, path.c_str(), W_OK | X_OK, AT_EACCESS) != 0)
    return refuse(path, "cannot be written", errno);
  return path;
}

Result<std::string> make_socket_directory() {
  if (const auto chosen = env("LOWTIDE_RUNTIME_DIR")) return make_directory(*chosen);
  if (const auto directory = env("XDG_RUNTIME_DIR"); directory && belongs_to_this_user(std::string(*directory))) {
    if (auto made = make_directory(*in_xdg()); made) return made;
  }
  return make_directory(in_tmp(::geteuid()));
}

std::optional<ProcessIdentity> identify(pid_t pid) {
  const auto stat = read_stat("/proc/" + std::to_string(pid) + "/stat");
  // A process whose first thread alone has ended looks like a corpse, but for its threads.
  if (!stat || (stat->ended && stat->threads < 2)) return std::nullopt;
  return ProcessIdentity{pid, stat->start_time};
}

std::optional<ProcessIdentity> identify_self() {
  const auto stat = read_stat("/proc/self/stat");
  return stat ? std::optional(ProcessIdentity{stat->pid, stat->start_time}) : std::nullopt;
}

std::string socket_name(const ProcessIdentity& process) {
  return std::to_string(process.pid) + '-' + std::to_string(process.start_time) + ".sock";
}

std::optional<ProcessIdentity> parse_socket_name(std::string_view name) {
  ProcessIdentity process;
  const auto* end = name.data() + name.size();
  const auto pid = std::from_chars(name.data(), end, process.pid);
  if (pid.ec != std::errc{} || pid.ptr == end || *pid.ptr != '-') return std::nullopt;
  std::from_chars(pid.ptr + 1, end, process.start_time);
  if (process.pid <= 0 || socket_name(process) != name) return std::nullopt;
  return process;
}

Result<sockaddr_un> socket_address(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  constexpr auto most = sizeof address.sun_path - 1;
  if (path.size() > most) {
    return fail(
        Error::format(Code::config,
                      "the socket's path has %zu bytes, the kernel allows %zu: set LOWTIDE_RUNTIME_DIR to a shorter "
                      "path than that of %.100s...",
                      path.size(), most, path.c_str()));
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

}  // namespace lowtide

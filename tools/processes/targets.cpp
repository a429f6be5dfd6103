// SPDX-License-Identifier: Apache-2.0
#include "tools/processes/targets.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>

#include "tools/exit_codes.hpp"
#include "tools/processes/process_tree.hpp"

namespace lowtide::tools {
namespace {

[[noreturn]] void throw_nothing_found(pid_t pid, const SocketListing& listing) {
  const auto recycled = std::find_if(listing.stale.begin(), listing.stale.end(),
                                     [&](const ControlSocket& socket) { return socket.process.pid == pid; });
  const bool was_left = recycled != listing.stale.end();
  const auto owner = owner_of(pid);
  if (!owner || !identify(pid)) {
    const auto* note = was_left ? "; its leftover socket was removed" : "";
    throw CommandError(ExitCode::not_found, fmt::format("there is no process {}{}", pid, note));
  }
  if (::geteuid() != 0 && *owner != ::geteuid()) {
    throw CommandError(ExitCode::permission, fmt::format("process {} belongs to user {}; ask as that user or as root",
                                                         pid, user_text(*owner)));
  }
  if (!listing.problems.empty()) throw CommandError(ExitCode::permission, listing.problems.front().message());
  if (was_left) {
    throw CommandError(
        ExitCode::not_found,
        fmt::format("process {} is not under Lowtide: an earlier process with that PID was, its leftover "
                    "socket was removed",
                    pid));
  }
  throw CommandError(
      ExitCode::not_found,
      fmt::format("process {} is not under Lowtide, or has not used a GPU yet: no socket of it in {}; start "
                  "it with `lowtide run`",
                  pid, fmt::join(socket_directories(), ", ")));
}

}  // namespace

pid_t parse_pid_argument(const std::string& text) {
  pid_t pid = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), pid);
  if (error != std::errc{} || rest != text.data() + text.size() || pid <= 0) {
    throw CommandError(ExitCode::usage, fmt::format("\"{}\" is not a process id", text));
  }
  return pid;
}

std::vector<ControlSocket> find_targets(pid_t pid) {
  const auto listing = list_sockets();
  const auto family = with_descendants(pid);
  std::vector<ControlSocket> targets;
  for (const auto& socket : listing.live) {
    if (family.contains(socket.process.pid)) targets.push_back(socket);
  }
  if (targets.empty()) throw_nothing_found(pid, listing);
  return targets;
}

}  // namespace lowtide::tools

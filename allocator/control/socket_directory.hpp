// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>
#include <sys/un.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "allocator/base/result.hpp"

// Where the sockets lie, and who may be trusted with them: docs/control-protocol.md.
namespace lowtide {

/// The folders where this user's processes may have their sockets, the likeliest first. Root also gets those of all
/// other users that exist.
std::vector<std::string> socket_directories();

/// The folder for this process's socket, made if it is missing. An unusable $LOWTIDE_RUNTIME_DIR is an error, since
/// somebody asked for it; an unusable $XDG_RUNTIME_DIR (of another user after sudo, of a finished login) falls through
/// to /tmp.
Result<std::string> make_socket_directory();

/// Whose folder is acceptable. A client that is root may look into anybody's; a server puts its socket into its user's
/// only.
enum class Owner { this_user, anybody_for_root };

/// True if `path` can be trusted, false if there is nothing. Code::refused unless it is a folder itself, not a link to
/// one, has an acceptable owner, and nobody else may write to it.
Result<bool> check_directory(const std::string& path, Owner owner);

/// Makes `path`, which is absolute, with mode 0700 if it is missing (not its parents), then checks it. Gives the path
/// without trailing slashes.
Result<std::string> make_directory(std::string_view path);

/// Gives what this process has just made the permissions that the umask may have taken. Code::refused if it is not
/// there any more: a link or another user's is never followed or changed.
Status give_mode(const std::string& path, unsigned mode);

/// What a socket's name says. A PID alone would be taken over by a later process.
struct ProcessIdentity {
  pid_t pid = 0;
  std::uint64_t start_time = 0;  ///< field 22 of /proc/PID/stat

  bool operator==(const ProcessIdentity&) const = default;
};

/// The process that has `pid` now; nothing if there is none, or only its corpse.
std::optional<ProcessIdentity> identify(pid_t pid);

/// This process, as the /proc that is mounted here counts it: where that is the /proc of another PID namespace, getpid
/// gives a number that names somebody else there. Nothing without /proc.
std::optional<ProcessIdentity> identify_self();

std::string socket_name(const ProcessIdentity& process);
std::optional<ProcessIdentity> parse_socket_name(std::string_view name);

/// Code::config if the path is longer than the kernel allows (107 bytes).
Result<sockaddr_un> socket_address(const std::string& path);

}  // namespace lowtide

// SPDX-License-Identifier: Apache-2.0
#include "allocator/control/control_client.hpp"

#include <dirent.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <memory>

#include "allocator/control/send.hpp"

namespace lowtide {
namespace {

using std::chrono::milliseconds;
using Kind = ClientError::Kind;

constexpr std::size_t longest_answer = std::size_t{64} << 20;
constexpr std::string_view progress_start = "{\"progress\":";

tl::unexpected<ClientError> failure(Kind kind, const ProcessIdentity& process, const std::string& what) {
  return tl::unexpected(ClientError{kind, "process " + std::to_string(process.pid) + ' ' + what});
}

// 0, or the errno of the attempt.
int try_to_connect(int socket, const sockaddr_un& address, milliseconds timeout) noexcept {
  const timeval limit{timeout.count() / 1000, (timeout.count() % 1000) * 1000};
  ::setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  return ::connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 ? 0 : errno;
}

bool nobody_listens(const std::string& path) {
  const auto address = socket_address(path);
  const UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  return address && socket && try_to_connect(socket.get(), *address, milliseconds{1000}) == ECONNREFUSED;
}

// The effective user.
std::optional<uid_t> user_of(pid_t process) {
  std::ifstream status("/proc/" + std::to_string(process) + "/status");
  for (std::string line; std::getline(status, line);) {
    unsigned real = 0;
    unsigned effective = 0;
    if (std::sscanf(line.c_str(), "Uid: %u %u", &real, &effective) == 2) return effective;
  }
  return std::nullopt;
}

// An exec keeps PID and start time: the program that runs there now may never have heard of the socket. Where the maps
// may not be read, it is taken to know.
bool runs_lowtide(pid_t process) {
  std::ifstream maps("/proc/" + std::to_string(process) + "/maps");
  std::string line;
  bool readable = false;
  while (std::getline(maps, line)) {
    readable = true;
    if (line.find("/liblowtide.so") != std::string::npos) return true;
  }
  return !readable;
}

// Whether the process may have made a socket in `folder`. To root every user's folder counts, and a user may write
// there under the name of another's process; what lies in root's own folder may belong to one that gave its rights up.
bool may_be_of(int folder, pid_t process) {
  struct stat status {};
  if (::fstat(folder, &status) != 0) return false;
  return status.st_uid == ::geteuid() || status.st_uid == 0 || user_of(process) == status.st_uid;
}

void list_directory(const std::string& directory, SocketListing& listing) {
  const std::unique_ptr<DIR, int (*)(DIR*)> stream(::opendir(directory.c_str()), ::closedir);
  if (!stream) {
    listing.problems.push_back(
        Error::format(Code::refused, "runtime folder %s cannot be read: %s", directory.c_str(), std::strerror(errno)));
    return;
  }
  while (const auto* entry = ::readdir(stream.get())) {
    const auto process = parse_socket_name(entry->d_name);
    if (!process) continue;
    ControlSocket socket{*process, directory + '/' + entry->d_name};
    if (identify(process->pid) == process) {
      if (!may_be_of(::dirfd(stream.get()), process->pid)) continue;
      // Left where it is: a program that has just begun may be about to serve it.
      if (!nobody_listens(socket.path) || runs_lowtide(process->pid)) listing.live.push_back(std::move(socket));
    } else if (nobody_listens(socket.path)) {
      ::unlink(socket.path.c_str());
      listing.stale.push_back(std::move(socket));
    }
  }
}

}  // namespace

SocketListing list_sockets() {
  SocketListing listing;
  for (const auto& directory : socket_directories()) {
    const auto there = check_directory(directory, Owner::anybody_for_root);
    if (!there) {
      listing.problems.push_back(there.error());
    } else if (*there) {
      list_directory(directory, listing);
    }
  }
  std::stable_sort(listing.live.begin(), listing.live.end(),
                   [](const auto& a, const auto& b) { return a.process.pid < b.process.pid; });
  return listing;
}

tl::expected<ControlClient, ClientError> ControlClient::connect(const ControlSocket& target, milliseconds timeout) {
  const auto address = socket_address(target.path);
  if (!address)
    return failure(Kind::gone, target.process, std::string("cannot be asked: ") + address.error().message());
  UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket) return failure(Kind::gone, target.process, std::string("cannot be asked: ") + std::strerror(errno));
  const int error = try_to_connect(socket.get(), *address, timeout);
  if (error == EACCES || error == EPERM) {
    return failure(Kind::permission, target.process, "belongs to another user: " + target.path + " cannot be opened");
  }
  if (error == EAGAIN || error == EINPROGRESS) return failure(Kind::silent, target.process, "accepts no connection");
  if (error != 0) {
    return failure(Kind::gone, target.process,
                   "does not serve its socket " + target.path + ": " + std::strerror(error));
  }
  ucred server{};
  socklen_t size = sizeof server;
  const bool known = ::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &server, &size) == 0;
  if (known && ::geteuid() != 0 && server.uid != ::geteuid()) {
    return failure(Kind::permission, target.process, "belongs to user " + std::to_string(server.uid));
  }
  return ControlClient(std::move(socket), target.process);
}

// False at the end of the connection.
tl::expected<bool, ClientError> ControlClient::receive(std::optional<milliseconds> silence, int call_off) {
  std::array<char, 16384> chunk{};
  std::array<pollfd, 2> ready{pollfd{socket_.get(), POLLIN, 0}, pollfd{call_off, POLLIN, 0}};
  int events = 0;
  do {
    events = ::poll(ready.data(), ready.size(), silence ? static_cast<int>(silence->count()) : -1);
  } while (events < 0 && errno == EINTR);
  if (events == 0) {
    return failure(Kind::silent, process_, "does not answer (waited " + std::to_string(silence->count()) + " ms)");
  }
  if (ready[0].revents == 0 && ready[1].revents != 0) {
    socket_.reset();
    return failure(Kind::called_off, process_, "is not waited for any more: called off");
  }
  const auto n = ::recv(socket_.get(), chunk.data(), chunk.size(), 0);
  if (n < 0 && errno != EINTR && errno != ECONNRESET) return failure(Kind::gone, process_, std::strerror(errno));
  if (n > 0) received_.append(chunk.data(), static_cast<std::size_t>(n));
  if (received_.size() > longest_answer) return failure(Kind::broken, process_, "gave an answer without end");
  return n > 0 || (n < 0 && errno == EINTR);
}

tl::expected<std::string, ClientError> ControlClient::request(const Request& request,
                                                              std::optional<milliseconds> silence,
                                                              const std::function<void(std::string_view)>& on_progress,
                                                              int call_off) {
  // A server that refuses us has answered and gone before we spoke, so a failed send is no reason not to read.
  send_all(socket_.get(), format_request(request) + '\n', silence.value_or(milliseconds{5000}));
  std::string last;
  for (bool more = true; more;) {
    const auto searched = received_.size();  // has no end of a line
    const auto received = receive(silence, call_off);
    if (!received) return tl::unexpected(received.error());
    more = *received;
    for (auto end = received_.find('\n', searched); end != std::string::npos; end = received_.find('\n')) {
      last = received_.substr(0, end);
      received_.erase(0, end + 1);
      if (last.starts_with(progress_start) && on_progress) on_progress(last);
    }
  }
  if (last.empty() || last.starts_with(progress_start)) {
    return failure(Kind::gone, process_, "ended before it had answered");
  }
  return last;
}

}  // namespace lowtide

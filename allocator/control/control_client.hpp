// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <vector>

#include "allocator/base/unique_fd.hpp"
#include "allocator/control/protocol.hpp"
#include "allocator/control/socket_directory.hpp"

namespace lowtide {

/// Why a process could not be asked. What the process itself answers is not an error of the client.
struct ClientError {
  enum class Kind {
    gone,        ///< it ended, or its socket is not served
    permission,  ///< it is another user's
    silent,      ///< it did not answer in time
    broken,      ///< it answered something that is not the protocol
    called_off,  ///< the answer is not wanted any more
  };
  Kind kind;
  std::string message;
};

struct ControlSocket {
  ProcessIdentity process;
  std::string path;
};

struct SocketListing {
  std::vector<ControlSocket> live;   ///< of processes that run Lowtide, by PID
  std::vector<ControlSocket> stale;  ///< of ended processes; unlinked now
  std::vector<Error> problems;       ///< folders that cannot be trusted or read
};

/// The sockets in all of socket_directories(). A socket is stale, and removed, when its process is gone and nobody
/// listens: a process in another PID namespace is not seen but does listen.
SocketListing list_sockets();

class ControlClient {
 public:
  /// `timeout` is for the connection; a process that is stopped does not accept but connects all the same.
  static tl::expected<ControlClient, ClientError> connect(const ControlSocket& socket,
                                                          std::chrono::milliseconds timeout);

  /// Sends one request; gives each progress line to `on_progress`, which may be empty, and returns the last line,
  /// without newlines. `silence` is the longest wait for a line; none: as long as it takes. When the descriptor
  /// `call_off`, if there is one, becomes readable, the connection ends, which calls a hold off that still waits for
  /// the process to come to rest. One request per client.
  tl::expected<std::string, ClientError> request(const Request& request,
                                                 std::optional<std::chrono::milliseconds> silence,
                                                 const std::function<void(std::string_view)>& on_progress,
                                                 int call_off = -1);

 private:
  ControlClient(UniqueFd socket, ProcessIdentity process) : socket_(std::move(socket)), process_(process) {}
  tl::expected<bool, ClientError> receive(std::optional<std::chrono::milliseconds> silence, int call_off);

  UniqueFd socket_;
  ProcessIdentity process_;
  std::string received_;
};

}  // namespace lowtide

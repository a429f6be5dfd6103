// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "allocator/base/quiet_thread.hpp"
#include "allocator/base/unique_fd.hpp"
#include "allocator/control/controlled.hpp"
#include "allocator/control/open_fds.hpp"
#include "allocator/control/protocol.hpp"
#include "allocator/control/socket_directory.hpp"
#include "allocator/control/transition_queue.hpp"

namespace lowtide {

/// Answers the control socket of this process (docs/control-protocol.md). One thread answers, a second one, started by
/// the first pause or resume, carries transitions out; both sleep in the kernel while nobody asks. Nothing a client
/// sends or omits disturbs the host: connections, requests and waiting times are bounded, and no SIGPIPE is raised.
class ControlServer {
 public:
  static constexpr std::size_t most_connections = 16;

  struct Options {
    std::optional<std::string> directory;            ///< default: make_socket_directory()
    std::chrono::milliseconds client_timeout{5000};  ///< for a whole request to come, and for an answer to be read
  };

  /// Listens and starts the thread. `controlled` outlives the server. Nothing is left behind on an error.
  static Result<std::unique_ptr<ControlServer>> start(Controlled& controlled, const Options& options);
  /// The same with the default options; an error is one warning and no server. Never throws.
  static std::unique_ptr<ControlServer> start_or_warn(Controlled& controlled) noexcept;

  /// Stops, except in a fork child.
  ~ControlServer();
  ControlServer(const ControlServer&) = delete;
  ControlServer& operator=(const ControlServer&) = delete;

  /// Unlinks the socket, lets a running transition end, joins the threads. Not from one of them. Repeating it is a
  /// no-op.
  void stop() noexcept;
  /// For an exit handler: unlinks the socket and waits for nobody.
  void unlink_socket() noexcept;
  /// In a fork child: closes the copies of the descriptors; takes no lock, touches no file. Afterwards the object may
  /// be destroyed or forgotten.
  void abandon_in_child() noexcept;

  const std::string& path() const noexcept { return path_; }

 private:
  struct Connection {
    int socket = -1;
    std::chrono::steady_clock::time_point deadline;
    std::string received;
    std::string unsent;
    bool answered = false;
  };

  ControlServer(Controlled& controlled, std::chrono::milliseconds client_timeout)
      : controlled_(controlled), client_timeout_(client_timeout), queue_(controlled, fds_, client_timeout) {}

  Status listen(const std::string& directory);
  void serve() noexcept;
  bool serve_once();
  void accept_one();
  void advance(Connection& connection, short events);
  void read_from(Connection& connection);
  void handle(Connection& connection, std::string_view line);
  void answer(Connection& connection, std::string text);
  void drop(Connection& connection) noexcept;
  int milliseconds_to_first_deadline() const;

  Controlled& controlled_;
  const std::chrono::milliseconds client_timeout_;
  ProcessIdentity self_;  ///< as /proc counts
  pid_t process_ = 0;     ///< as getpid counts: a fork child has another
  std::string path_;
  OpenFds fds_;
  int listener_ = -1;
  int stop_event_ = -1;
  std::vector<Connection> connections_;  ///< of the serving thread
  TransitionQueue queue_;
  QuietThread thread_;
  bool running_ = false;
};

}  // namespace lowtide

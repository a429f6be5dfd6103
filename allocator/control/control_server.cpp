// SPDX-License-Identifier: Apache-2.0
#include "allocator/control/control_server.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "allocator/base/log.hpp"
#include "allocator/control/send.hpp"

namespace lowtide {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

Failure system_failure(const char* what, const std::string& path) {
  return fail(Error::format(Code::unsupported, "control socket %s: %s: %s", path.c_str(), what, std::strerror(errno)));
}

// Root may ask anybody; so may a process of the same user.
bool is_allowed(int socket, uid_t& user) noexcept {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return false;
  user = peer.uid;
  return peer.uid == 0 || peer.uid == ::geteuid();
}

}  // namespace

Result<std::unique_ptr<ControlServer>> ControlServer::start(Controlled& controlled, const Options& options) {
  auto directory = options.directory ? make_directory(*options.directory) : make_socket_directory();
  if (!directory) return fail(directory.error());
  std::unique_ptr<ControlServer> server(new ControlServer(controlled, options.client_timeout));
  if (auto status = server->listen(*directory); !status) return fail(status.error());
  if (auto status = server->thread_.start("lowtide-control", [&s = *server] { s.serve(); }); !status) {
    return fail(status.error());
  }
  return server;
}

std::unique_ptr<ControlServer> ControlServer::start_or_warn(Controlled& controlled) noexcept {
  try {
    auto server = start(controlled, {});
    if (server) return std::move(*server);
    log(LogLevel::warning, "no control socket, so `lowtide pause` cannot reach this process: %s",
        server.error().message());
  } catch (...) {
    log(LogLevel::warning, "no control socket: out of host memory");
  }
  return nullptr;
}

ControlServer::~ControlServer() { stop(); }

Status ControlServer::listen(const std::string& directory) {
  const auto self = identify_self();
  if (!self) return fail(Code::unsupported, "control socket: /proc/self/stat cannot be read");
  self_ = *self;
  process_ = ::getpid();
  path_ = directory + '/' + socket_name(self_);
  const auto address = socket_address(path_);
  if (!address) return fail(address.error());
  UniqueFd socket(above_standard(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)));
  if (!socket) return system_failure("socket", path_);
  UniqueFd event(above_standard(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)));
  if (!event) return system_failure("eventfd", path_);
  // An exec keeps PID and start time: what lies there was this process's own.
  ::unlink(path_.c_str());
  if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof *address) != 0) {
    return system_failure("bind", path_);
  }
  connections_.reserve(most_connections);
  running_ = true;
  listener_ = socket.release();
  stop_event_ = event.release();
  fds_.add(listener_);
  fds_.add(stop_event_);
  if (auto status = give_mode(path_, S_IRUSR | S_IWUSR); !status) return status;
  if (::listen(listener_, static_cast<int>(most_connections)) != 0) return system_failure("listen", path_);
  return {};
}

void ControlServer::unlink_socket() noexcept {
  if (running_ && ::getpid() == process_) ::unlink(path_.c_str());
}

void ControlServer::stop() noexcept {
  if (!running_) return;
  if (::getpid() != process_) return abandon_in_child();
  unlink_socket();
  running_ = false;
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = ::write(stop_event_, &one, sizeof one);
  thread_.join();
  queue_.stop();
  for (auto& connection : connections_) drop(connection);
  fds_.close(listener_);
  fds_.close(stop_event_);
}

void ControlServer::abandon_in_child() noexcept {
  running_ = false;
  fds_.close_copies_in_child();
  thread_.forget();
  queue_.abandon_in_child();
}

void ControlServer::serve() noexcept {
  for (;;) {
    try {
      if (!serve_once()) return;
    } catch (...) {
      // Out of host memory: whoever is connected is let go, and the server goes on with what that freed.
      for (auto& connection : connections_) drop(connection);
    }
  }
}

// False when it is time to end: asked to, or the host closed descriptors that are not its own.
bool ControlServer::serve_once() {
  std::erase_if(connections_, [](const Connection& connection) { return connection.socket < 0; });
  std::array<pollfd, most_connections + 2> waiting{};
  waiting[0] = {stop_event_, POLLIN, 0};
  waiting[1] = {listener_, POLLIN, 0};
  const auto count = connections_.size();
  for (std::size_t i = 0; i < count; ++i) {
    const auto events = static_cast<short>(connections_[i].answered ? POLLOUT : POLLIN);
    waiting[i + 2] = {connections_[i].socket, events, 0};
  }
  if (::poll(waiting.data(), count + 2, milliseconds_to_first_deadline()) < 0 && errno != EINTR) return false;
  if (waiting[0].revents != 0 || (waiting[1].revents & (POLLNVAL | POLLERR | POLLHUP)) != 0) return false;
  for (std::size_t i = 0; i < count; ++i) advance(connections_[i], waiting[i + 2].revents);
  if (waiting[1].revents != 0) accept_one();
  return true;
}

int ControlServer::milliseconds_to_first_deadline() const {
  if (connections_.empty()) return -1;
  const auto first = std::min_element(connections_.begin(), connections_.end(),
                                      [](const auto& a, const auto& b) { return a.deadline < b.deadline; });
  const auto left = std::chrono::ceil<milliseconds>(first->deadline - steady_clock::now());
  return static_cast<int>(std::max<milliseconds::rep>(0, left.count()));
}

void ControlServer::accept_one() {
  const int socket = above_standard(::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (socket < 0) {
    const bool exhausted = errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
    // The client stays in the backlog and would wake us again at once.
    pollfd stop{stop_event_, POLLIN, 0};
    if (exhausted) ::poll(&stop, 1, 100);
    return;
  }
  uid_t user = 0;
  if (!is_allowed(socket, user)) {
    const auto refusal =
        Error::format(Code::refused, "this process belongs to user %u, and you are user %u", ::geteuid(), user);
    send_all(socket, error_answer(refusal), milliseconds{0});
  } else if (connections_.size() >= most_connections) {
    send_all(socket, error_answer(Error(Code::busy, "too many clients are connected; try again")), milliseconds{0});
  } else if (fds_.add(socket)) {
    connections_.push_back({socket, steady_clock::now() + client_timeout_});
    return;
  }
  ::close(socket);
}

void ControlServer::advance(Connection& connection, short events) {
  if ((events & POLLNVAL) != 0) return drop(connection);
  if (connection.answered) {
    if (events != 0 && !send_some(connection.socket, connection.unsent)) connection.unsent.clear();
    if (connection.unsent.empty() || steady_clock::now() >= connection.deadline) drop(connection);
    return;
  }
  if (events != 0) return read_from(connection);
  if (steady_clock::now() < connection.deadline) return;
  const auto waited = static_cast<double>(client_timeout_.count()) / 1000.0;
  answer(connection, error_answer(Error::format(Code::invalid, "no whole request within %.1f s", waited)));
}

void ControlServer::read_from(Connection& connection) {
  std::array<char, longest_request> chunk{};
  const auto n = ::recv(connection.socket, chunk.data(), chunk.size(), MSG_DONTWAIT);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (n < 0) return drop(connection);
  if (n == 0) {
    if (connection.received.empty()) return drop(connection);
    return answer(connection, error_answer(Error(Code::invalid, "the request has no newline at its end")));
  }
  connection.received.append(chunk.data(), static_cast<std::size_t>(n));
  const auto end = connection.received.find('\n');
  if (std::min(end, connection.received.size()) >= longest_request) {
    const auto limit = Error::format(Code::invalid, "the request is longer than %zu bytes", longest_request);
    return answer(connection, error_answer(limit));
  }
  if (end == std::string::npos) return;
  handle(connection, std::string_view(connection.received).substr(0, end));
}

void ControlServer::handle(Connection& connection, std::string_view line) {
  const auto request = parse_request(line);
  if (!request) return answer(connection, error_answer(request.error()));
  if (std::holds_alternative<HelloRequest>(*request)) return answer(connection, hello_answer(self_.pid));
  if (std::holds_alternative<StatusRequest>(*request)) {
    return answer(connection, status_answer(controlled_.status_json()));
  }
  if (const auto* set = std::get_if<SetRequest>(&*request)) {
    const auto status = controlled_.set(set->key, set->value);
    return answer(connection, status ? ok_answer() : error_answer(status.error()));
  }
  if (const auto* why = std::get_if<WhyRequest>(&*request)) {
    return answer(connection, why_answer(controlled_.why_json(why->tag)));
  }
  const auto status = queue_.submit(connection.socket, *request);
  if (!status) return answer(connection, error_answer(status.error()));
  connection.socket = -1;  // the queue's now
}

void ControlServer::answer(Connection& connection, std::string text) {
  connection.answered = true;
  connection.unsent = std::move(text);
  connection.deadline = steady_clock::now() + client_timeout_;
  if (!send_some(connection.socket, connection.unsent) || connection.unsent.empty()) drop(connection);
}

void ControlServer::drop(Connection& connection) noexcept {
  if (connection.socket >= 0) fds_.close(connection.socket);
  connection.socket = -1;
}

}  // namespace lowtide

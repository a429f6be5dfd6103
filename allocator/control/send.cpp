// SPDX-License-Identifier: Apache-2.0
#include "allocator/control/send.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "allocator/control/protocol.hpp"

namespace lowtide {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

bool send_some(int socket, std::string& text) noexcept {
  while (!text.empty()) {
    const auto sent = ::send(socket, text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) return errno == EAGAIN || errno == EWOULDBLOCK;
    text.erase(0, static_cast<std::size_t>(sent));
  }
  return true;
}

bool send_all(int socket, std::string text, milliseconds timeout) noexcept {
  const auto deadline = steady_clock::now() + timeout;
  while (send_some(socket, text)) {
    if (text.empty()) return true;
    const auto left = std::chrono::duration_cast<milliseconds>(deadline - steady_clock::now());
    if (left <= milliseconds::zero()) return false;
    pollfd ready{socket, POLLOUT, 0};
    ::poll(&ready, 1, static_cast<int>(left.count()));
  }
  return false;
}

void ProgressWriter::write(const Progress& progress) {
  constexpr milliseconds interval{100};
  const auto now = steady_clock::now();
  if (now - last_ < interval) return;
  last_ = now;
  if (unsent_.empty()) unsent_ = progress_line(progress);
  if (!send_some(socket_, unsent_)) unsent_.clear();
}

}  // namespace lowtide

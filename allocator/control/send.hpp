// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "allocator/core/report.hpp"

namespace lowtide {

/// Sends as much of `text` as goes without waiting and removes it from `text`. False if the peer is gone. Never raises
/// SIGPIPE.
bool send_some(int socket, std::string& text) noexcept;

/// Sends all of `text`, waiting up to `timeout` for a peer that reads slowly. False if that was not enough.
bool send_all(int socket, std::string text, std::chrono::milliseconds timeout) noexcept;

/// Sends progress to a client that may be slow or gone: never waits, never holds up the copy, at most ten lines a
/// second.
class ProgressWriter {
 public:
  explicit ProgressWriter(int socket) noexcept : socket_(socket) {}
  void write(const Progress& progress);
  /// The part of a line that could not be sent yet: it goes before anything else.
  const std::string& unsent() const noexcept { return unsent_; }

 private:
  int socket_;
  std::string unsent_;
  std::chrono::steady_clock::time_point last_{};
};

}  // namespace lowtide

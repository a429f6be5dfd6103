// SPDX-License-Identifier: Apache-2.0
// A control server with a process behind it that does what the test says.
#pragma once

#include <sys/socket.h>

#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <thread>

#include "allocator/control/control_client.hpp"
#include "allocator/control/control_server.hpp"
#include "tests/catch.hpp"

namespace lowtide {

// A process whose transitions last until the test lets them go.
class FakeProcess final : public Controlled {
 public:
  std::string status_json() override { return "{\"pid\":1}"; }

  Result<TransitionReport> pause(std::optional<TagName> tag, bool hold, std::optional<std::chrono::milliseconds> drain,
                                 const ProgressSink& progress, const CalledOff& called_off) override {
    last_hold = hold;
    last_drain = drain;
    if (throws) throw std::bad_alloc();
    for (std::uint64_t i = 0; i < progress_lines; ++i) progress({Bytes{i}, Bytes{progress_lines}});
    if (never_rests) {
      wait();
      while (!called_off()) std::this_thread::yield();
      ++times_called_off;
      return fail(Code::refused, "the hold was called off");
    }
    wait();
    if (tag && tag->view() == "busy") return fail(Code::refused, "a capture is under way");
    return report(1);
  }
  Result<TransitionReport> resume(std::optional<TagName>, const ProgressSink&) override {
    wait();
    return report(2);
  }
  Status enter_phase(const TagName&, PhasePart, bool) override { return {}; }
  std::string why_json(const TagName&) override { return "{}"; }
  Result<TrimReport> trim() override {
    wait();
    if (throws) throw std::bad_alloc();
    return TrimReport{3_MiB, 5_MiB};
  }
  Status set(std::string_view key, std::string_view value) override {
    if (key == "bad") return fail(Code::config, "unknown key");
    last_value = value;
    return {};
  }

  void block() { blocked_ = true; }
  void release() {
    const std::lock_guard lock(mutex_);
    blocked_ = false;
    changed_.notify_all();
  }
  void wait_until_started(int count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return started >= count; });
  }
  int count_started() {
    const std::lock_guard lock(mutex_);
    return started;
  }

  std::atomic<bool> last_hold{false};
  std::optional<std::chrono::milliseconds> last_drain;
  std::string last_value;
  std::uint64_t progress_lines = 0;
  std::atomic<bool> throws{false};
  std::atomic<bool> never_rests{false};  ///< a pause lasts until it is called off
  std::atomic<int> times_called_off{0};

 private:
  static TransitionReport report(std::uint64_t blocks) {
    TransitionReport made;
    made.blocks = blocks;
    return made;
  }
  void wait() {
    std::unique_lock lock(mutex_);
    ++started;
    changed_.notify_all();
    changed_.wait(lock, [&] { return !blocked_; });
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool blocked_ = false;
  int started = 0;
};

class Fixture {
 public:
  explicit Fixture(std::chrono::milliseconds timeout = std::chrono::seconds{5}) {
    char name[] = "/tmp/lowtide-test-XXXXXX";
    folder = ::mkdtemp(name);
    auto started = ControlServer::start(process, {folder, timeout});
    REQUIRE(started);
    server = std::move(*started);
  }
  ~Fixture() {
    process.release();
    server.reset();
    std::filesystem::remove_all(folder);
  }

  UniqueFd connect() const {
    UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const auto address = socket_address(server->path());
    REQUIRE(::connect(socket.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof *address) == 0);
    return socket;
  }
  std::string ask(const std::string& bytes) const {
    const auto socket = connect();
    say(socket, bytes);
    return hear(socket);
  }
  static void say(const UniqueFd& socket, const std::string& bytes) {
    for (std::size_t sent = 0; sent < bytes.size();) {
      const auto n = ::send(socket.get(), bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
      if (n < 0) return;
      sent += static_cast<std::size_t>(n);
    }
  }
  static std::string hear(const UniqueFd& socket) {
    std::string all;
    char chunk[4096];
    for (;;) {
      const auto n = ::recv(socket.get(), chunk, sizeof chunk, 0);
      if (n <= 0) return all;
      all.append(chunk, static_cast<std::size_t>(n));
    }
  }

  FakeProcess process;
  std::string folder;
  std::unique_ptr<ControlServer> server;
};

}  // namespace lowtide

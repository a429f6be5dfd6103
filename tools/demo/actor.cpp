// SPDX-License-Identifier: Apache-2.0
#include "tools/demo/actor.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "tools/exit_codes.hpp"
#include "tools/installation.hpp"

extern char** environ;

namespace lowtide::tools {
namespace {

constexpr int longest_answer_ms = 300'000;

struct Pipe {
  UniqueFd read;
  UniqueFd write;
};

Pipe make_pipe() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
    throw CommandError(ExitCode::failed, fmt::format("demo: no pipe: {}", std::strerror(errno)));
  }
  return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

std::vector<std::string> merged_environment(const Actor::Environment& added) {
  std::vector<std::string> entries;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    if (!added.contains(std::string(text.substr(0, text.find('='))))) entries.emplace_back(text);
  }
  for (const auto& [name, value] : added) entries.push_back(fmt::format("{}={}", name, value));
  return entries;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> result;
  result.reserve(texts.size() + 1);
  for (auto& text : texts) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

ControlSocket socket_of(pid_t pid) {
  auto listing = list_sockets();
  const auto found = std::find_if(listing.live.begin(), listing.live.end(),
                                  [pid](const ControlSocket& socket) { return socket.process.pid == pid; });
  if (found == listing.live.end()) {
    throw CommandError(ExitCode::not_found, fmt::format("demo: process {} does not answer on a control socket", pid));
  }
  return *found;
}

}  // namespace

Actor::Actor(std::string name, const Environment& environment) : name_(std::move(name)) {
  const auto program = find_installed("lowtide-demo-worker");
  if (!program) throw CommandError(ExitCode::failed, "demo: lowtide-demo-worker is not installed with this command");
  Pipe to = make_pipe();
  Pipe from = make_pipe();
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, to.read.get(), STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, from.write.get(), STDOUT_FILENO);
  auto entries = merged_environment(environment);
  std::vector<std::string> words{program->string()};
  const int error =
      ::posix_spawn(&pid_, words[0].c_str(), &actions, nullptr, pointers(words).data(), pointers(entries).data());
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) throw CommandError(ExitCode::failed, fmt::format("demo: {}: {}", words[0], std::strerror(error)));
  requests_ = std::move(to.write);
  answers_ = std::move(from.read);
  try {
    answer();
  } catch (...) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    throw;
  }
}

void Actor::end() noexcept {
  if (pid_ < 0) return;
  requests_.reset();
  constexpr int most_waits = 500;
  int waits = 0;
  while (::waitpid(pid_, nullptr, WNOHANG) == 0 && waits++ < most_waits) {
    std::this_thread::sleep_for(std::chrono::milliseconds{10});
  }
  if (waits > most_waits) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  pid_ = -1;
}

std::string Actor::ask(const std::string& request) {
  const auto line = request + "\n";
  if (::write(requests_.get(), line.data(), line.size()) != static_cast<ssize_t>(line.size())) {
    throw CommandError(ExitCode::failed, fmt::format("demo: the {} is gone", name_));
  }
  return answer();
}

std::string Actor::answer() {
  for (std::size_t end = received_.find('\n');; end = received_.find('\n')) {
    if (end != std::string::npos) {
      const auto line = received_.substr(0, end);
      received_.erase(0, end + 1);
      if (line.starts_with("ok")) return line.size() > 3 ? line.substr(3) : "";
      throw CommandError(ExitCode::failed, fmt::format("demo: {}: {}", name_, line));
    }
    pollfd waited{answers_.get(), POLLIN, 0};
    std::array<char, 4096> part{};
    if (::poll(&waited, 1, longest_answer_ms) <= 0) {
      throw CommandError(ExitCode::failed, fmt::format("demo: the {} does not answer", name_));
    }
    const auto count = ::read(answers_.get(), part.data(), part.size());
    if (count <= 0) throw CommandError(ExitCode::failed, fmt::format("demo: the {} ended", name_));
    received_.append(part.data(), static_cast<std::size_t>(count));
  }
}

ProcessStatus Actor::status() const { return ask_status(socket_of(pid_)); }
nlohmann::json Actor::pause() const {
  return ask_transition(socket_of(pid_), PauseRequest{}, [](Bytes, Bytes) {});
}
nlohmann::json Actor::resume() const {
  return ask_transition(socket_of(pid_), ResumeRequest{}, [](Bytes, Bytes) {});
}

}  // namespace lowtide::tools

// SPDX-License-Identifier: Apache-2.0
#include "tests/hazards/child.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <climits>
#include <cstdlib>

#include "tests/hazards/control.hpp"
#include "tests/hazards/other_thread.hpp"
#include "tests/hazards/program.hpp"

extern char** environ;

namespace hazards {
namespace {

std::vector<std::string> changed_environment(const Environment& changes) {
  std::vector<std::string> all;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    if (changes.count(text.substr(0, text.find('='))) == 0) all.push_back(text);
  }
  for (const auto& [name, value] : changes) {
    if (!value.empty()) all.push_back(name + "=" + value);
  }
  return all;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> all;
  for (auto& text : texts) all.push_back(text.data());
  all.push_back(nullptr);
  return all;
}

std::string read_all(int file) {
  std::string text;
  std::array<char, 4096> chunk{};
  for (ssize_t n = 0; (n = ::read(file, chunk.data(), chunk.size())) > 0;) {
    text.append(chunk.data(), static_cast<std::size_t>(n));
  }
  return text;
}

}  // namespace

Child::Child(const std::string& program, const std::vector<std::string>& arguments, const Environment& changes) {
  start(program.find('/') == std::string::npos ? own_folder() + "/" + program : program, arguments, changes);
}

void Child::start(const std::string& path, const std::vector<std::string>& arguments, const Environment& changes) {
  runtime_directory();
  std::array<int, 2> in{};
  std::array<int, 2> out{};
  must(::pipe2(in.data(), O_CLOEXEC) == 0 && ::pipe2(out.data(), O_CLOEXEC) == 0, "pipe");
  errors_ = ::memfd_create("errors", MFD_CLOEXEC);
  std::vector<std::string> words{path};
  words.insert(words.end(), arguments.begin(), arguments.end());
  auto variables = changed_environment(changes);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, errors_, STDERR_FILENO);
  const int error =
      ::posix_spawn(&pid_, path.c_str(), &actions, nullptr, pointers(words).data(), pointers(variables).data());
  posix_spawn_file_actions_destroy(&actions);
  ::close(in[0]);
  ::close(out[1]);
  to_child_ = in[1];
  from_child_ = out[0];
  must(error == 0, path.c_str());
}

Child::~Child() {
  if (pid_ <= 0) return;
  kill();
  end();
}

std::string Child::line() {
  std::string text;
  char byte = 0;
  while (::read(from_child_, &byte, 1) == 1 && byte != '\n') text += byte;
  return text;
}

void Child::say(const std::string& line) const {
  const auto text = line + "\n";
  must(::write(to_child_, text.data(), text.size()) == static_cast<ssize_t>(text.size()), "the child listens");
}

bool Child::has_more() const {
  pollfd waiting{from_child_, POLLIN, 0};
  return ::poll(&waiting, 1, 0) > 0;
}

void Child::wait_until_asleep() const {
  wait_until_asleep_or(pid_, [] { return false; });
}

void Child::kill() const { ::kill(pid_, SIGKILL); }

Ending Child::end() {
  Ending ending;
  ::close(to_child_);
  ending.output = read_all(from_child_);
  ::close(from_child_);
  ::waitpid(pid_, &ending.status, 0);
  pid_ = -1;
  ::lseek(errors_, 0, SEEK_SET);
  ending.errors = read_all(errors_);
  ::close(errors_);
  return ending;
}

Ending run_victim(const std::string& role, const Environment& changes) {
  return Child("hazards_victim", {role}, changes).end();
}

std::string own_folder() {
  std::array<char, PATH_MAX> path{};
  const auto length = ::readlink("/proc/self/exe", path.data(), path.size() - 1);
  const std::string own(path.data(), length > 0 ? static_cast<std::size_t>(length) : 0);
  return own.substr(0, own.rfind('/'));
}

int count_of(const std::string& text, const std::string& part) {
  int count = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) ++count;
  return count;
}

}  // namespace hazards

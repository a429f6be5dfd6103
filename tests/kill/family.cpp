// SPDX-License-Identifier: Apache-2.0
#include "tests/kill/family.hpp"

#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <deque>
#include <fstream>
#include <sstream>
#include <stdexcept>

#include "tests/hazards/program.hpp"

namespace kill_suite {
namespace {

std::vector<std::string> texts_of(const std::vector<std::uint64_t>& numbers) {
  std::vector<std::string> texts;
  texts.reserve(numbers.size());
  for (const auto number : numbers) texts.push_back(std::to_string(number));
  return texts;
}

/// The host memory of a corpse went with its death.
bool has_memory(pid_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/statm");
  long long pages = 0;
  return file >> pages && pages != 0;
}

}  // namespace

DeathWatch::DeathWatch(pid_t process) : file_(static_cast<int>(::syscall(SYS_pidfd_open, process, 0))) {
  hazards::must(file_ >= 0, "pidfd_open");
}

DeathWatch::~DeathWatch() { ::close(file_); }

void DeathWatch::wait() const {
  pollfd dead{file_, POLLIN, 0};
  while (::poll(&dead, 1, -1) != 1) continue;
}

Family::Family(const std::vector<std::uint64_t>& seeds, const hazards::Environment& environment)
    : launcher_("kill_family", texts_of(seeds), environment) {
  std::istringstream pids(launcher_.line());
  for (std::size_t i = 0; i < seeds.size(); ++i) {
    Member member{i, 0, {}};
    hazards::must(static_cast<bool>(pids >> member.pid), "the launcher starts the members");
    members_.push_back(member);
  }
}

std::string Family::ask(std::size_t index, const std::string& text) {
  launcher_.say(std::to_string(index) + ' ' + text);
  return launcher_.line();
}

Footprint Family::check(const Member& member) {
  const auto answer = ask(member.index, "check");
  std::istringstream words(answer);
  std::string ok;
  Footprint now;
  if (words >> ok >> now.device_bytes >> now.descriptors && ok == "ok") return now;
  throw std::runtime_error("process " + std::to_string(member.pid) + " says: " + answer);
}

void Family::kill(const std::vector<std::size_t>& places) {
  std::deque<DeathWatch> watches;
  for (const auto place : places) watches.emplace_back(members_.at(place).pid);
  for (const auto place : places) ::kill(members_[place].pid, SIGKILL);
  for (const auto& watch : watches) watch.wait();
  auto sorted = places;
  std::sort(sorted.rbegin(), sorted.rend());
  for (const auto place : sorted) {
    hazards::must(!has_memory(members_[place].pid), "a killed process has no memory");
    corpses_.push_back(members_[place].index);
    members_.erase(members_.begin() + static_cast<std::ptrdiff_t>(place));
  }
}

void Family::reap() {
  for (const auto index : corpses_) {
    hazards::must(ask(index, "reap") == std::to_string(SIGKILL), "SIGKILL ended it, and nothing else");
  }
  corpses_.clear();
}

}  // namespace kill_suite

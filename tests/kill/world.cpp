// SPDX-License-Identifier: Apache-2.0
#include "tests/kill/world.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "tests/hazards/program.hpp"

namespace kill_suite {
namespace {

namespace fs = std::filesystem;

/// The PID in a name such as share-12-34 or 12-34.sock; 0 if it is no such name.
pid_t pid_in(const std::string& name, const std::string& prefix) {
  if (name.rfind(prefix, 0) != 0) return 0;
  return static_cast<pid_t>(std::strtol(name.c_str() + prefix.size(), nullptr, 10));
}

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename());
  return names;
}

}  // namespace

World::World() : folder_("/tmp/lowtide-kill-XXXXXX") {
  hazards::must(::mkdtemp(folder_.data()) != nullptr, "mkdtemp");
  for (const char* const name : {"/run", "/gpu"}) {
    fs::create_directory(folder_ + name);
    fs::permissions(folder_ + name, fs::perms::owner_all);
  }
  ::setenv("LOWTIDE_RUNTIME_DIR", (folder_ + "/run").c_str(), 1);
  ::setenv("LOWTIDE_SIM_DIR", (folder_ + "/gpu").c_str(), 1);
  ::setenv("LOWTIDE_SIM_MEMORY", std::to_string(device_bytes).c_str(), 1);
  hazards::use_device();
}

World::~World() {
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
}

hazards::Environment World::under_lowtide(const std::string& settings) const {
  return {{"LD_PRELOAD", LOWTIDE_TEST_PRELOAD}, {"LOWTIDE_CONF", settings}};
}

std::size_t World::free_bytes() const { return hazards::free_bytes(); }

std::set<pid_t> World::shares() const {
  std::set<pid_t> processes;
  for (const auto& name : names_in(folder_ + "/gpu")) processes.insert(pid_in(name, "share-"));
  processes.erase(0);
  processes.erase(::getpid());
  return processes;
}

std::set<pid_t> World::sockets() const {
  std::set<pid_t> processes;
  for (const auto& name : names_in(folder_ + "/run")) processes.insert(pid_in(name, ""));
  return processes;
}

std::vector<std::string> World::strangers() const {
  std::vector<std::string> found;
  for (const auto& name : names_in(folder_ + "/gpu")) {
    if (name != "lock" && pid_in(name, "share-") == 0) found.push_back(name);
  }
  for (const auto& name : names_in(folder_ + "/run")) {
    if (pid_in(name, "") == 0 || fs::path(name).extension() != ".sock") found.push_back(name);
  }
  for (const auto& name : names_in("/dev/shm")) {
    // The ledger of those that live; who comes next uses what the killed left there, and the last one removes it.
    const bool is_ledger = name == "lowtide-" + std::to_string(::geteuid()) || name.starts_with("lowtide-test-");
    if (name.find("lowtide") != std::string::npos && !is_ledger) found.push_back(name);
  }
  return found;
}

hazards::Child start_command(const std::vector<std::string>& arguments) {
  return hazards::Child(LOWTIDE_TEST_COMMAND, arguments);
}

Outcome outcome_of(hazards::Child& command) {
  const auto ending = command.end();
  Outcome outcome;
  if (WIFEXITED(ending.status)) outcome.exit_code = WEXITSTATUS(ending.status);
  outcome.errors = ending.errors;
  if (!ending.output.empty()) outcome.answer = nlohmann::json::parse(ending.output);
  return outcome;
}

Outcome run_command(const std::vector<std::string>& arguments) {
  auto command = start_command(arguments);
  return outcome_of(command);
}

}  // namespace kill_suite

// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cstdio>
#include <set>

#include "tools/command.hpp"
#include "tools/processes/ask.hpp"
#include "tools/processes/targets.hpp"

namespace lowtide::tools {
namespace {

class EnterPhase final : public Command {
 public:
  void declare(CLI::App& app) override {
    app.add_option("NAME", name_, "A [[phase]] of the processes' configuration")->required();
    app.add_option("PID", pids_, "Processes under Lowtide, or parents of some")->required();
    app.add_flag("--json", json_, "The outcome as JSON on stdout");
    app.footer(
        "Each process carries out its own steps of the phase: first all of them those pauses with which the phase\n"
        "begins, then one process after the other the rest, in the order of the PIDs. What is paused is held. A "
        "process\n"
        "that waits for an update of its weights ends it with 6: the same command goes on after the update.\n"
        "One that fails ends it too; what the others did stays, and the command may be repeated.\n\n"
        "Example:\n"
        "  lowtide phase to_rollout 4711 4712\n\n" +
        exit_code_help());
  }

  ExitCode run() override {
    const auto name = TagName::parse(name_);
    if (!name) {
      throw CommandError(ExitCode::usage,
                         fmt::format("\"{}\" is not a phase's name: 1 to 63 of A-Z a-z 0-9 _ -", name_));
    }
    const auto targets = all_targets();
    for (const auto& target : targets) ask_status(target);  // one that does not answer would be waited for without end
    for (const auto& target : targets) ask_phase(target, *name, true);
    auto all = nlohmann::json::array();
    for (const auto& target : targets) {
      ask_phase(target, *name, false);
      all.push_back({{"pid", target.process.pid}, {"phase", name_}});
      if (!json_) fmt::print("process {}: {}\n", target.process.pid, name_);
    }
    if (json_) fmt::print("{}\n", nlohmann::json{{"ok", true}, {"processes", all}}.dump());
    return ExitCode::ok;
  }

  bool json() const override { return json_; }

 private:
  std::vector<ControlSocket> all_targets() const {
    std::vector<ControlSocket> all;
    std::set<std::string> seen;
    for (const auto& pid : pids_) {
      for (auto& target : find_targets(parse_pid_argument(pid))) {
        if (seen.insert(target.path).second) all.push_back(std::move(target));
      }
    }
    return all;
  }

  std::string name_;
  std::vector<std::string> pids_;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> make_phase() { return std::make_unique<EnterPhase>(); }

}  // namespace lowtide::tools

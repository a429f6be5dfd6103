// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>
#include <set>

#include "tools/command.hpp"
#include "tools/processes/asked.hpp"
#include "tools/processes/declared_phase.hpp"
#include "tools/processes/targets.hpp"

namespace lowtide::tools {
namespace {

class EnterPhase final : public Command {
 public:
  void declare(CLI::App& app) override {
    app.add_option("NAME", name_, "A [[phase]] of the processes' configuration; without any, a mark of your own")
        ->required();
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
    const auto asked = ask_each(all_targets());  // one that does not answer would be waited for without end
    check_phase(asked, name_);
    for (const auto& each : asked) ask_phase(each.socket, *name, true);
    auto all = nlohmann::json::array();
    for (const auto& each : asked) {
      ask_phase(each.socket, *name, false);
      const auto pid = each.socket.process.pid;
      const bool declared = declares(each.status, name_);
      all.push_back({{"pid", pid}, {"phase", name_}, {"declared", declared}});
      if (!json_) fmt::print("process {}: {}{}\n", pid, name_, declared ? "" : ", as a mark only");
    }
    if (json_) fmt::print("{}\n", nlohmann::json{{"ok", true}, {"processes", all}}.dump());
    warn_of_marks(asked);
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

  /// Who meant a phase must not take a mark for one that was carried out.
  void warn_of_marks(const std::vector<Asked>& asked) const {
    std::vector<pid_t> marked;
    for (const auto& each : asked) {
      if (!declares(each.status, name_)) marked.push_back(each.socket.process.pid);
    }
    if (marked.empty()) return;
    fmt::print(stderr,
               "lowtide: no [[phase]] {} is declared in the configuration of process {}: it paused and resumed "
               "nothing; the name only marks its status and trace, and serves [[match]] rules\n",
               name_, fmt::join(marked, ", "));
  }

  std::string name_;
  std::vector<std::string> pids_;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> make_phase() { return std::make_unique<EnterPhase>(); }

}  // namespace lowtide::tools

// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cstdio>

#include "tools/command.hpp"
#include "tools/processes/targets.hpp"
#include "tools/view/status_view.hpp"

namespace lowtide::tools {
namespace {

class ShowStatus final : public Command {
 public:
  void declare(CLI::App& app) override {
    app.add_option("PID", pid_, "A process under Lowtide, or a parent of some")->required();
    app.add_flag("--json", json_, "The status objects of docs/control-protocol.md on stdout");
    app.footer(
        "A process that does not answer is named on stderr, and the others are shown all the same.\n\n"
        "Examples:\n"
        "  lowtide status 4711\n"
        "  lowtide status 4711 --json | jq .processes[].tags\n\n" +
        exit_code_help());
  }

  ExitCode run() override {
    auto all = nlohmann::json::array();
    std::string text;
    auto exit_code = ExitCode::ok;
    for (const auto& target : find_targets(parse_pid_argument(pid_))) {
      try {
        const auto status = ask_status(target);
        all.push_back(status.raw);
        text += status_text(status);
      } catch (const CommandError& error) {
        all.push_back({{"pid", target.process.pid}, {"error", error.what()}});
        if (exit_code == ExitCode::ok) exit_code = error.exit_code();
        fmt::print(stderr, "lowtide: {}\n", error.what());
      }
    }
    const nlohmann::json object{{"ok", exit_code == ExitCode::ok}, {"processes", all}};
    fmt::print("{}", json_ ? object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + '\n' : text);
    return exit_code;
  }

  bool json() const override { return json_; }

 private:
  std::string pid_;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> make_status() { return std::make_unique<ShowStatus>(); }

}  // namespace lowtide::tools

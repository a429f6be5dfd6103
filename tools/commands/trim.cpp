// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cstdio>

#include "tools/command.hpp"
#include "tools/processes/ask.hpp"
#include "tools/processes/targets.hpp"

namespace lowtide::tools {
namespace {

class Trim final : public Command {
 public:
  void declare(CLI::App& app) override {
    app.add_option("PID", pid_, "A process under Lowtide, or a parent of some")->required();
    app.add_flag("--json", json_, "The outcome as JSON on stdout");
    app.footer(
        "After a resume a process keeps the host memory of its backups, since getting it anew is what makes a first\n"
        "pause slow (host.retain). This gives it back; the next pause is as slow as the first. What is parked stays.\n"
        "Every process is asked, also after one has failed.\n\n"
        "Examples:\n"
        "  lowtide trim 4711\n"
        "  lowtide trim 4711 --json | jq .processes[].trim.bytes_given_back\n\n" +
        exit_code_help());
  }

  ExitCode run() override {
    const auto targets = find_targets(parse_pid_argument(pid_));
    auto outcomes = nlohmann::json::array();
    auto exit_code = ExitCode::ok;
    for (const auto& target : targets) {
      nlohmann::json outcome{{"pid", target.process.pid}};
      try {
        ask_status(target);  // a trim of one that does not answer would be waited for without end
        const auto trim = ask_trim(target);
        outcome["trim"] = trim.raw;
        if (!json_) {
          fmt::print("process {}: gave {} of host memory back, {} still held\n", target.process.pid,
                     to_text(trim.given_back), to_text(trim.held));
        }
      } catch (const CommandError& error) {
        outcome["error"] = error.what();
        if (exit_code == ExitCode::ok) exit_code = error.exit_code();
        fmt::print(stderr, "lowtide: {}\n", error.what());
      }
      outcomes.push_back(std::move(outcome));
    }
    if (json_) print_json(outcomes, exit_code);
    return exit_code;
  }

  bool json() const override { return json_; }

 private:
  static void print_json(const nlohmann::json& outcomes, ExitCode exit_code) {
    const nlohmann::json all{
        {"ok", exit_code == ExitCode::ok}, {"exit_code", static_cast<int>(exit_code)}, {"processes", outcomes}};
    fmt::print("{}\n", all.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  }

  std::string pid_;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> make_trim() { return std::make_unique<Trim>(); }

}  // namespace lowtide::tools

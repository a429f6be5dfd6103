// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <utility>

#include "tools/commands/trace_commands.hpp"

namespace lowtide::tools {
namespace {

struct Subject {
  const char* name;
  const char* summary;
  std::unique_ptr<Command> (*make)();
};

constexpr std::array subjects{
    Subject{"report", "Show peak, time and backups by phase and tag, and who allocated most", make_trace_report},
    Subject{"log", "Print verl's memory lines from traces, or read such lines from training logs", make_trace_log},
    Subject{"diff", "Compare the peaks of two runs by phase", make_trace_diff},
    Subject{"export", "Write a trace in the format of another program", make_trace_export},
    Subject{"plot", "Draw a page that shows memory over time, or a picture", make_trace_plot},
};

/// `lowtide trace SUBJECT`.
class Trace final : public Command {
 public:
  void declare(CLI::App& app) override {
    app.require_subcommand(1);
    app.footer(
        "A FILE is a trace, as LOWTIDE_TRACE has a process write it; report, log and diff also read training logs.\n\n"
        "Examples:\n"
        "  lowtide trace report 4711.ltt\n"
        "  lowtide trace plot 4711.ltt -o memory.html\n\n" +
        exit_code_help());
    for (const auto& subject : subjects) {
      commands_.emplace_back(app.add_subcommand(subject.name, subject.summary), subject.make());
      commands_.back().second->declare(*commands_.back().first);
    }
  }

  ExitCode run() override { return chosen().run(); }
  bool json() const override { return chosen().json(); }

 private:
  /// The parser takes care that there is one.
  Command& chosen() const {
    return *std::find_if(commands_.begin(), commands_.end(), [](const auto& each) {
              return each.first->parsed();
            })->second;
  }

  std::vector<std::pair<CLI::App*, std::unique_ptr<Command>>> commands_;
};

}  // namespace

std::unique_ptr<Command> make_trace() { return std::make_unique<Trace>(); }

}  // namespace lowtide::tools

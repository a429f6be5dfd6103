// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cstdio>

#include "tools/commands/trace_commands.hpp"
#include "tools/trace/load.hpp"
#include "tools/trace/log_lines.hpp"
#include "tools/trace/report.hpp"

namespace lowtide::tools {
namespace {

class TraceReport final : public Command {
 public:
  void declare(CLI::App& app) override {
    app.add_option("FILE", files_, "Traces or training logs")->required();
    options_.declare(app);
    app.add_flag("--json", json_, "All columns as JSON on stdout");
    app.footer(
        "Phases that no program has declared are inferred from pauses and resumes.\n\n"
        "Examples:\n"
        "  lowtide trace report 4711.ltt\n"
        "  lowtide trace report --agg max-gpu --steps 2-4 run/*.ltt\n\n" +
        exit_code_help());
  }

  ExitCode run() override {
    const auto selection = options_.selection();
    return show_report(load_profile(files_), selection, json_);
  }
  bool json() const override { return json_; }

 private:
  SelectionOptions options_;
  std::vector<std::string> files_;
  bool json_ = false;
};

class TraceLog final : public Command {
 public:
  void declare(CLI::App& app) override {
    app.add_option("FILE", files_, "Traces, or training logs")->required();
    options_.declare(app);
    app.add_flag("--json", json_, "The table of training logs as JSON on stdout");
    app.footer(
        "Of traces it prints \"<label>, memory allocated (GB): x, memory reserved (GB): y, device memory used/total "
        "(GB): "
        "u/t\"\n"
        "before and after each phase. What is parked counts as reserved; a GB is 2^30 bytes, as verl counts.\n"
        "From logs it reads the lines of verl, SGLang, vLLM and slime, with what Ray and loggers put around them.\n\n"
        "Examples:\n"
        "  lowtide trace log 4711.ltt\n"
        "  lowtide trace log train.log\n\n" +
        exit_code_help());
  }

  ExitCode run() override {
    const auto selection = options_.selection();
    std::size_t traces = 0;
    for (const auto& file : files_) traces += is_trace(file) ? 1U : 0U;
    if (traces > 0 && traces < files_.size()) {
      throw CommandError(ExitCode::usage,
                         "traces and training logs together: log prints lines of traces, and reads those of logs");
    }
    if (traces > 0 && json_)
      throw CommandError(ExitCode::usage, "--json is for training logs; lowtide trace report --json is for traces");
    const auto profile = load_profile(files_);
    if (traces == 0) return show_report(profile, selection, json_);
    tell_notes(profile);
    require_steps(profile, selection);
    fmt::print("{}", log_lines(profile, selection));
    return ExitCode::ok;
  }
  bool json() const override { return json_; }

 private:
  SelectionOptions options_;
  std::vector<std::string> files_;
  bool json_ = false;
};

}  // namespace

void tell_notes(const Profile& profile) {
  for (const auto& note : profile.notes) fmt::print(stderr, "lowtide: {}\n", note);
}

ExitCode show_report(const Profile& profile, const Selection& selection, bool json) {
  tell_notes(profile);
  require_steps(profile, selection);
  if (json) {
    const auto report = report_json(profile, selection);
    fmt::print("{}\n", report.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  } else {
    fmt::print("{}", report_text(profile, selection));
  }
  return ExitCode::ok;
}

std::unique_ptr<Command> make_trace_report() { return std::make_unique<TraceReport>(); }
std::unique_ptr<Command> make_trace_log() { return std::make_unique<TraceLog>(); }

}  // namespace lowtide::tools

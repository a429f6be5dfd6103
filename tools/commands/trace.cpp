// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cstdio>

#include "tools/command.hpp"
#include "tools/trace/diff.hpp"
#include "tools/trace/load.hpp"
#include "tools/trace/log_lines.hpp"
#include "tools/trace/report.hpp"

namespace lowtide::tools {
namespace {

std::string line_of(const nlohmann::json& object) {
  return object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + '\n';
}

void tell_notes(const Profile& profile) {
  for (const auto& note : profile.notes) fmt::print(stderr, "lowtide: {}\n", note);
}

/// `lowtide trace report|log|diff`.
class TraceCommand final : public Command {
 public:
  void declare(CLI::App& app) override {
    app.require_subcommand(1);
    app.footer(
        "A FILE is a trace, as LOWTIDE_TRACE has a process write it; report, log and diff also read training "
        "logs.\n\n" +
        exit_code_help());
    declare_report(app);
    declare_log(app);
    declare_diff(app);
  }

  ExitCode run() override {
    if (report_->parsed()) return report();
    if (log_->parsed()) return log();
    return diff();
  }
  bool json() const override { return json_; }

 private:
  void declare_report(CLI::App& app) {
    report_ = app.add_subcommand("report", "Show peak, time and backups by phase and tag, and who allocated most");
    add_files(*report_);
    add_selection(*report_);
    report_->add_flag("--json", json_, "All columns as JSON on stdout");
    report_->footer(
        "Phases that no program has declared are inferred from pauses and resumes.\n\n"
        "Examples:\n"
        "  lowtide trace report 4711.ltt\n"
        "  lowtide trace report --agg max-gpu --steps 2-4 run/*.ltt\n\n" +
        exit_code_help());
  }

  void declare_log(CLI::App& app) {
    log_ = app.add_subcommand("log", "Print verl's memory lines from traces, or read such lines from training logs");
    add_files(*log_);
    add_selection(*log_);
    log_->add_flag("--json", json_, "The table of a training log as JSON on stdout");
    log_->footer(
        "Of traces it prints \"<label>, memory allocated (GB): x, memory reserved (GB): y, device memory used/total "
        "(GB): "
        "u/t\"\n"
        "before and after each phase. What is reserved counts what is parked too; a GB is 2^30 bytes, as verl counts.\n"
        "From logs it reads the lines of verl, SGLang, vLLM and slime, with what Ray and loggers put around them.\n\n"
        "Examples:\n"
        "  lowtide trace log 4711.ltt\n"
        "  lowtide trace log train.log\n\n" +
        exit_code_help());
  }

  void declare_diff(CLI::App& app) {
    diff_ = app.add_subcommand("diff", "Compare the peaks of two runs by phase");
    diff_->add_option("A", before_, "A trace or a training log")->required();
    diff_->add_option("B", after_, "Another")->required();
    diff_->add_option("--steps", steps_, "Only these steps, as in 2-4");
    add_text(*diff_, "--of", of_, "What to compare: used (of the device), or a tag or another column of the report");
    diff_->add_flag("--markdown", markdown_, "A table as it is posted in pull requests");
    diff_->add_flag("--json", json_, "JSON on stdout");
    diff_->footer(
        "Examples:\n"
        "  lowtide trace diff before.ltt after.ltt --steps 2-4 --markdown\n"
        "  lowtide trace diff before.log after.log\n\n" +
        exit_code_help());
  }

  void add_files(CLI::App& app) { app.add_option("FILE", files_, "Traces or training logs")->required(); }

  void add_selection(CLI::App& app) {
    app.add_option("--steps", steps_, "Only these steps, as in 2-4: epochs of declared phases, else runs of a phase");
    app.add_option("--agg", aggregate_, "each: a table for each device of each process; max-gpu: the maximum over all")
        ->check(CLI::IsMember({"each", "max-gpu"}));
  }

  Selection selection() const {
    auto selection = steps_.empty() ? Selection{} : parse_steps(steps_);
    selection.over_devices = aggregate_ == "max-gpu";
    return selection;
  }

  ExitCode report() const {
    const auto chosen = selection();
    return show(load_profile(files_), chosen);
  }

  ExitCode show(const Profile& profile, const Selection& chosen) const {
    tell_notes(profile);
    fmt::print("{}", json_ ? line_of(report_json(profile, chosen)) : report_text(profile, chosen));
    return ExitCode::ok;
  }

  ExitCode log() const {
    const auto chosen = selection();
    std::size_t traces = 0;
    for (const auto& file : files_) traces += is_trace(file) ? 1U : 0U;
    if (traces > 0 && traces < files_.size())
      throw CommandError(ExitCode::usage,
                         "traces and training logs together: log prints lines of the ones, and reads the others");
    const auto profile = load_profile(files_);
    if (traces == 0) return show(profile, chosen);
    if (json_)
      throw CommandError(ExitCode::usage, "--json is for training logs; `lowtide trace report --json` reads traces");
    tell_notes(profile);
    fmt::print("{}", log_lines(profile));
    return ExitCode::ok;
  }

  ExitCode diff() const {
    const auto chosen = selection();
    const auto before = load_profile({before_});
    const auto after = load_profile({after_});
    tell_notes(before);
    tell_notes(after);
    const auto difference = compare(before, after, chosen, of_);
    if (json_) {
      fmt::print("{}", line_of(diff_json(difference)));
    } else {
      fmt::print("{}", markdown_ ? diff_markdown(difference) : diff_text(difference));
    }
    return ExitCode::ok;
  }

  CLI::App* report_ = nullptr;
  CLI::App* log_ = nullptr;
  CLI::App* diff_ = nullptr;
  std::vector<std::string> files_;
  std::string before_;
  std::string after_;
  std::string steps_;
  std::string aggregate_ = "each";
  std::optional<std::string> of_;
  bool markdown_ = false;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> make_trace() { return std::make_unique<TraceCommand>(); }

}  // namespace lowtide::tools

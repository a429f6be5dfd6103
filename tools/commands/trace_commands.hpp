// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <vector>

#include "tools/command.hpp"
#include "tools/trace/phase_table.hpp"
#include "tools/trace/profile.hpp"

namespace lowtide::tools {

// What follows `lowtide trace`.
std::unique_ptr<Command> make_trace_report();
std::unique_ptr<Command> make_trace_log();
std::unique_ptr<Command> make_trace_diff();
std::unique_ptr<Command> make_trace_export();
std::unique_ptr<Command> make_trace_plot();

/// --steps, and --agg where there are several tables.
class SelectionOptions {
 public:
  void declare_steps(CLI::App& app) {
    app.add_option("--steps", steps_, "Only these steps, as in 2-4: a step begins where a phase comes again");
  }
  void declare(CLI::App& app) {
    declare_steps(app);
    app.add_option("--agg", aggregate_, "each: a table for each device of each process; max-gpu: the maximum over all")
        ->check(CLI::IsMember({"each", "max-gpu"}));
  }
  /// Throws CommandError (usage).
  Selection selection() const {
    auto selection = steps_.empty() ? Selection{} : parse_steps(steps_);
    selection.over_devices = aggregate_ == "max-gpu";
    return selection;
  }

 private:
  std::string steps_;
  std::string aggregate_ = "each";
};

/// What is missing from a profile, on stderr.
void tell_notes(const Profile& profile);

/// The report on stdout.
ExitCode show_report(const Profile& profile, const Selection& selection, bool json);

}  // namespace lowtide::tools

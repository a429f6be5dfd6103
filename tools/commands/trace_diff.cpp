// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "tools/commands/trace_commands.hpp"
#include "tools/trace/diff.hpp"
#include "tools/trace/load.hpp"

namespace lowtide::tools {
namespace {

class TraceDiff final : public Command {
 public:
  void declare(CLI::App& app) override {
    app.add_option("A", before_, "A trace or a training log")->required();
    app.add_option("B", after_, "Another")->required();
    options_.declare_steps(app);
    add_text(app, "--of", of_, "What to compare: used (of the device), or a tag or another column of the report");
    app.add_flag("--markdown", markdown_, "A table as it is posted in pull requests");
    app.add_flag("--json", json_, "JSON on stdout");
    app.footer(
        "Of several devices the maximum counts.\n\n"
        "Examples:\n"
        "  lowtide trace diff before.ltt after.ltt --steps 2-4 --markdown\n"
        "  lowtide trace diff before.log after.log\n\n" +
        exit_code_help());
  }

  ExitCode run() override {
    const auto selection = options_.selection();
    const auto before = load_profile({before_});
    const auto after = load_profile({after_});
    tell_notes(before);
    tell_notes(after);
    require_steps(before, selection);
    require_steps(after, selection);
    const auto diff = compare(before, after, selection, of_);
    if (json_) {
      fmt::print("{}\n", diff_json(diff).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
    } else {
      fmt::print("{}", markdown_ ? diff_markdown(diff) : diff_text(diff));
    }
    if (diff.none_in_both)
      fmt::print(stderr,
                 "lowtide: no phase of A is one of B: they are compared by name, and a log's are its lines' labels\n");
    return ExitCode::ok;
  }
  bool json() const override { return json_; }

 private:
  SelectionOptions options_;
  std::string before_;
  std::string after_;
  std::optional<std::string> of_;
  bool markdown_ = false;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> make_trace_diff() { return std::make_unique<TraceDiff>(); }

}  // namespace lowtide::tools

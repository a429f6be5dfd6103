// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cstdio>

#include "allocator/policy/check.hpp"
#include "allocator/policy/toml_file.hpp"
#include "tools/command.hpp"
#include "tools/processes/asked.hpp"
#include "tools/processes/targets.hpp"

namespace lowtide::tools {
namespace {

using Json = nlohmann::json;

std::string line_of(const Json& object) { return object.dump(-1, ' ', false, Json::error_handler_t::replace) + '\n'; }

/// `lowtide policy check FILE` and `lowtide policy why PID TAG`.
class ShowPolicy final : public Command {
 public:
  void declare(CLI::App& app) override {
    app.require_subcommand(1);
    check_ = app.add_subcommand("check", "Read a configuration, and say what in its rules and phases cannot work");
    check_->add_option("FILE", file_, "A configuration, as LOWTIDE_CONFIG names it")->required();
    check_->add_flag("--json", json_, "The findings as JSON on stdout");
    check_->footer(
        "Findings: tags that nothing gives, rules that wait for each other in a circle, content that is dropped and\n"
        "never refilled, phases whose steps break a rule. With any of them the exit code is 2, as it is for a file "
        "that\n"
        "cannot be read or says something that is not allowed.\n\n"
        "Example:\n"
        "  lowtide policy check lowtide.toml\n\n" +
        exit_code_help());
    auto* why = app.add_subcommand("why", "Say what stands in the way of a resume");
    why->add_option("PID", pid_, "A process under Lowtide, or a parent of some")->required();
    why->add_option("TAG", tag_, "The tag that is to be resumed")->required();
    why->add_flag("--json", json_, "The answers as JSON on stdout");
    why->footer("Example:\n  lowtide policy why 4711 weights\n\n" + exit_code_help());
  }

  ExitCode run() override { return check_->parsed() ? check() : why(); }
  bool json() const override { return json_; }

 private:
  ExitCode check() const {
    ConfigurationSources sources;
    sources.file = file_;
    const auto configuration = load_configuration(sources);
    if (!configuration) throw CommandError(ExitCode::usage, configuration.error().message());
    const auto lines = key_lines(file_);
    if (!lines) throw CommandError(ExitCode::usage, lines.error().message());
    const auto findings = check_policy(*configuration, *lines);
    auto all = Json::array();
    for (const auto& finding : findings) {
      all.push_back({{"line", finding.line == 0 ? Json() : Json(finding.line)}, {"message", finding.message}});
      const auto place = finding.line == 0 ? file_ : fmt::format("{}:{}", file_, finding.line);
      if (!json_) fmt::print("{}: {}\n", place, finding.message);
    }
    const auto& sync = configuration->sync;
    if (json_) {
      fmt::print("{}", line_of({{"ok", findings.empty()},
                                {"mode", to_text(sync.mode)},
                                {"rules", sync.rules.size()},
                                {"phases", sync.phases.size()},
                                {"findings", all}}));
    } else if (findings.empty()) {
      const auto counted = [](std::size_t count, const char* what) {
        return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
      };
      fmt::print("{}: mode {}, {}, {}: nothing to complain of\n", file_, to_text(sync.mode),
                 counted(sync.rules.size(), "rule"), counted(sync.phases.size(), "phase"));
    }
    return findings.empty() ? ExitCode::ok : ExitCode::usage;
  }

  ExitCode why() const {
    const auto tag = TagName::parse(tag_);
    if (!tag)
      throw CommandError(ExitCode::usage, fmt::format("\"{}\" is not a tag name: 1 to 63 of A-Z a-z 0-9 _ -", tag_));
    auto all = Json::array();
    for (const auto& [target, status] : those_with(*tag, ask_each(find_targets(parse_pid_argument(pid_))))) {
      const auto lines = ask_why(target, *tag);
      all.push_back({{"pid", target.process.pid}, {"tag", tag_}, {"in_the_way", lines}});
      if (json_) continue;
      if (lines.empty())
        fmt::print("process {}: no rule stands in the way of a resume of {}\n", target.process.pid, tag_);
      for (const auto& line : lines) fmt::print("process {}: {}\n", target.process.pid, line);
    }
    if (json_) fmt::print("{}", line_of({{"ok", true}, {"processes", all}}));
    return ExitCode::ok;
  }

  CLI::App* check_ = nullptr;
  std::string file_;
  std::string pid_;
  std::string tag_;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> make_policy() { return std::make_unique<ShowPolicy>(); }

}  // namespace lowtide::tools

// SPDX-License-Identifier: Apache-2.0
#include "tools/commands/transition_command.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>

#include "tools/processes/interruption.hpp"
#include "tools/processes/targets.hpp"
#include "tools/view/nothing_moved.hpp"
#include "tools/view/status_view.hpp"
#include "tools/view/terminal.hpp"

namespace lowtide::tools {
namespace {

using nlohmann::json;

constexpr std::string_view past_tense(TransitionWish::Verb verb) {
  return verb == TransitionWish::Verb::pause ? parked_verb : brought_back_verb;
}

json as_json(const MemberOutcome& outcome) {
  json object{{"pid", outcome.pid}};
  if (outcome.report) object["report"] = *outcome.report;
  if (!outcome.error.empty()) object["error"] = outcome.error;
  if (outcome.undone) object["undone"] = true;
  if (!outcome.undo_error.empty()) object["undo_error"] = outcome.undo_error;
  return object;
}

void print_json(const std::vector<MemberOutcome>& outcomes, ExitCode exit_code) {
  json processes = json::array();
  for (const auto& outcome : outcomes) processes.push_back(as_json(outcome));
  const json all{
      {"ok", exit_code == ExitCode::ok}, {"exit_code", static_cast<int>(exit_code)}, {"processes", processes}};
  fmt::print("{}\n", all.dump(-1, ' ', false, json::error_handler_t::replace));
}

void print_failures(const std::vector<MemberOutcome>& outcomes) {
  for (const auto& outcome : outcomes) {
    if (!outcome.error.empty()) fmt::print(stderr, "lowtide: {}\n", outcome.error);
  }
  for (const auto& outcome : outcomes) {
    if (outcome.undone) fmt::print(stderr, "lowtide: process {} was put back as it was\n", outcome.pid);
    if (!outcome.undo_error.empty()) {
      fmt::print(stderr, "lowtide: process {} could not be put back: {}\n", outcome.pid, outcome.undo_error);
    }
  }
}

Interruption::Words words_of_interruption(pid_t asked, const std::vector<ControlSocket>& targets,
                                          const TransitionWish& wish) {
  // A progress bar may stand there.
  const std::string start = std::string(stderr_is_terminal() ? "\r\x1b[K" : "") + "lowtide: ";
  std::vector<pid_t> pids;
  pids.reserve(targets.size());
  for (const auto& target : targets) pids.push_back(target.process.pid);
  const auto tag = wish.tag ? fmt::format(" --tag {}", wish.tag->view()) : "";
  return {start + "putting everything back; Ctrl-C again leaves it paused\n",
          start + fmt::format("ended before everything was put back: what is parked stays paused (asked: {}); "
                              "`lowtide resume {}{}` brings it back\n",
                              fmt::join(pids, ", "), asked, tag)};
}

// A caller that wanted the process held must not take a success for that.
void warn_of_unheld(const std::vector<MemberOutcome>& outcomes, const TransitionWish& wish) {
  for (const auto& outcome : outcomes) {
    if (!moved_nothing(*outcome.report)) continue;
    const auto nothing = explain_nothing_moved(outcome.before, wish);
    if (!nothing.not_held) continue;
    fmt::print(stderr, "lowtide: process {} is NOT held and goes on: {}\n", outcome.pid, nothing.reason);
  }
}

std::string text_of(const MemberOutcome& outcome, const TransitionWish& wish) {
  if (!moved_nothing(*outcome.report)) return report_text(outcome.pid, past_tense(wish.verb), *outcome.report);
  const auto nothing = explain_nothing_moved(outcome.before, wish);
  return fmt::format("process {}: {}\n", outcome.pid, nothing.not_held ? "nothing was parked" : nothing.reason);
}

}  // namespace

void TransitionCommand::declare_common(CLI::App& app) {
  app.add_option("PID", pid_, "A process under Lowtide, or a parent of some: all of them, or none")->required();
  add_text(app, "--tag", tag_, "Only this tag; default: all tags as one transition")->type_name("TAG");
  app.add_flag("--json", json_, "The outcome as JSON on stdout");
}

TransitionWish TransitionCommand::wish() const {
  TransitionWish wish{verb_, std::nullopt, hold_, std::nullopt};
  if (tag_) {
    wish.tag = TagName::parse(*tag_);
    if (!wish.tag) {
      throw CommandError(ExitCode::usage, fmt::format("\"{}\" is not a tag name: 1 to 63 of A-Z a-z 0-9 _ -", *tag_));
    }
  }
  if (timeout_) {
    wish.timeout = parse_seconds(*timeout_);
    if (!wish.timeout) {
      throw CommandError(ExitCode::usage,
                         fmt::format("--timeout is a number of seconds, 0 to 1000000, not \"{}\"", *timeout_));
    }
  }
  return wish;
}

ExitCode TransitionCommand::run() {
  const auto pid = parse_pid_argument(pid_);
  const auto asked = wish();
  const auto targets = find_targets(pid);
  // A resume that is interrupted is left to its end: putting it back would take as long.
  std::optional<Interruption> interruption;
  if (verb_ == TransitionWish::Verb::pause) interruption.emplace(words_of_interruption(pid, targets, asked));
  const auto outcomes = carry_out(targets, asked, interruption ? interruption->fd() : -1);
  interruption.reset();
  const auto failed =
      std::find_if(outcomes.begin(), outcomes.end(), [](const auto& outcome) { return !outcome.report; });
  const auto exit_code = failed == outcomes.end() ? ExitCode::ok : failed->exit_code;
  if (json_) print_json(outcomes, exit_code);
  print_failures(outcomes);
  if (std::any_of(outcomes.begin(), outcomes.end(), [](const auto& outcome) { return outcome.called_off; })) {
    std::fflush(stdout);
    Interruption::end_by_signal();
  }
  if (exit_code != ExitCode::ok) return exit_code;
  for (const auto& outcome : outcomes) {
    if (!json_) fmt::print("{}", text_of(outcome, asked));
  }
  warn_of_unheld(outcomes, asked);
  if (Interruption::came()) fmt::print(stderr, "lowtide: the interruption came too late: the pause was done\n");
  return exit_code;
}

}  // namespace lowtide::tools

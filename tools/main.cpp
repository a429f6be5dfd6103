// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "allocator/control/socket_directory.hpp"
#include "allocator/policy/words.hpp"
#include "tools/command.hpp"
#include "tools/view/terminal.hpp"

namespace lowtide::tools {
namespace {

struct Verb {
  const char* name;
  const char* summary;
  std::unique_ptr<Command> (*make)();
  bool starts_program = false;  ///< what follows the first "--" is not this command's to read
};

constexpr Verb verbs[] = {
    {"run", "Start a program under Lowtide", make_run, true},
    {"ps", "List this user's processes under Lowtide", make_ps},
    {"status", "Show a process's devices, tags and bytes", make_status},
    {"pause", "Hold a process and give its device memory back", make_pause},
    {"resume", "Bring a process's device memory back and let it go on", make_resume},
    {"trim", "Give back the host memory that a process keeps for its next pause", make_trim},
    {"phase", "Let processes carry out their steps of a phase", make_phase},
    {"policy", "Check rules and phases, and say what stands in the way of a resume", make_policy},
    {"top", "Watch the devices and processes of this machine", make_top},
    {"trace", "Show where the memory went: reports, pictures and other programs' files from a trace", make_trace},
    {"env", "Print what a launcher needs to start programs under Lowtide", make_env},
    {"compat", "Put Lowtide's library in the place of torch_memory_saver's, or take it out again", make_compat},
    {"doctor", "Say what Lowtide finds on this machine, and what stands in its way", make_doctor},
    {"demo", "Play one colocated RL step with two processes, and check every byte", make_demo},
};

constexpr const char* examples =
    "Examples:\n"
    "  lowtide run --tag weights -- python serve.py\n"
    "  lowtide ps\n"
    "  lowtide pause 4711 --tag kv_cache\n"
    "  lowtide resume 4711\n\n";

ExitCode report(const Command* command, ExitCode exit_code, const std::string& message) {
  fmt::print(stderr, "lowtide: {}\n", message);
  if (command != nullptr && command->json()) {
    const nlohmann::json error{{"exit_code", static_cast<int>(exit_code)}, {"message", message}};
    fmt::print("{}\n", nlohmann::json{{"ok", false}, {"error", error}}.dump(-1, ' ', false,
                                                                            nlohmann::json::error_handler_t::replace));
  }
  return exit_code;
}

// Who runs, what lies below whom, and where this command is installed is all read there: without it a verb would only
// see nobody.
void require_proc() {
  if (!identify_self()) {
    throw CommandError(ExitCode::failed, "/proc/self/stat cannot be read: Lowtide needs /proc mounted here");
  }
}

ExitCode run_verb(Command& command) {
  try {
    require_proc();
    const auto exit_code = command.run();
    if (std::fflush(stdout) != 0) return report(nullptr, ExitCode::failed, "stdout cannot be written");
    return exit_code;
  } catch (const CommandError& error) {
    return report(&command, error.exit_code(), error.what());
  } catch (const std::exception& error) {
    return report(&command, ExitCode::failed, error.what());
  }
}

/// As the user has typed it, with those that it is a part of.
std::string name_of(const CLI::App& command) {
  const auto* parent = command.get_parent();
  return parent == nullptr ? command.get_name() : name_of(*parent) + ' ' + command.get_name();
}

/// `command` is the one whose help tells more.
ExitCode refuse(const std::string& message, const CLI::App& command) {
  return report(nullptr, ExitCode::usage, fmt::format("{} (see `{} --help`)", message, name_of(command)));
}

const CLI::App& innermost(const CLI::App& app) {
  const auto inner = app.get_subcommands();
  return inner.empty() ? app : innermost(*inner.front());
}

/// A word that no command has taken, and the one in which it stands.
struct Leftover {
  std::string word;
  const CLI::App* command;

  bool is_option() const { return word.starts_with('-'); }
  bool stands_for_command() const {
    return !is_option() && command->get_subcommands().empty() && !command->get_subcommands({}).empty();
  }
};

std::optional<Leftover> first_leftover(const CLI::App& app) {
  for (const auto* command = &app;; command = command->get_subcommands().front()) {
    for (const auto& word : command->remaining()) {
      if (word != "--") return Leftover{word, command};
    }
    if (command->get_subcommands().empty()) return std::nullopt;
  }
}

std::string hint(const std::string& word, const std::vector<std::string>& known) {
  const std::vector<std::string_view> candidates(known.begin(), known.end());
  return did_you_mean(word, candidates);
}

ExitCode refuse_leftover(const Leftover& leftover) {
  constexpr std::size_t most_of_a_word = 100;
  const auto& command = *leftover.command;
  std::vector<std::string> known;
  if (leftover.is_option()) {
    const auto option = leftover.word.substr(0, leftover.word.find('='));
    for (const auto* each : command.get_options()) {
      for (const auto& name : each->get_lnames()) known.push_back("--" + name);
    }
    return refuse(fmt::format("unknown option \"{}\"{}", printable(option, most_of_a_word), hint(option, known)),
                  command);
  }
  const auto word = printable(leftover.word, most_of_a_word);
  // The words behind "--" come back to the outermost command.
  if (!leftover.stands_for_command()) return refuse(fmt::format("unexpected word \"{}\"", word), innermost(command));
  if (command.get_parent() == nullptr) known.emplace_back("help");
  for (const auto* each : command.get_subcommands({})) known.push_back(each->get_name());
  return refuse(fmt::format("unknown command \"{}\"{}", word, hint(leftover.word, known)), command);
}

/// A word that is not understood is said before what is missing: it is often what is missing, in other letters.
ExitCode refuse_parsed(const CLI::App& app, const CLI::ParseError& error) {
  const auto leftover = first_leftover(app);
  const bool of_words = dynamic_cast<const CLI::RequiredError*>(&error) != nullptr ||
                        dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr;
  if (leftover && of_words) return refuse_leftover(*leftover);
  return refuse(error.what(), innermost(app));
}

const Verb* find_verb(std::string_view word) {
  const auto* found =
      std::find_if(std::begin(verbs), std::end(verbs), [&](const Verb& verb) { return word == verb.name; });
  return found == std::end(verbs) ? nullptr : found;
}

// The words for the parser, and those of the program that a verb starts: what follows the first "--". Elsewhere "--"
// ends the options, which the parser knows.
struct Words {
  std::vector<std::string> own;
  std::optional<std::vector<std::string>> program;
};

Words split_words(int argc, char** argv) {
  Words words{{argv + 1, argv + argc}, std::nullopt};
  if (!words.own.empty() && words.own[0] == "help") {  // "help VERB" is "VERB --help"
    words.own.resize(std::min<std::size_t>(words.own.size(), 2));
    words.own.erase(words.own.begin());
    words.own.emplace_back("--help");
  }
  const auto* verb = words.own.empty() ? nullptr : find_verb(words.own[0]);
  if (verb == nullptr || !verb->starts_program) return words;
  const auto mark = std::find(words.own.begin(), words.own.end(), "--");
  if (mark == words.own.end()) return words;
  words.program.emplace(mark + 1, words.own.end());
  words.own.erase(mark, words.own.end());
  return words;
}

ExitCode main(int argc, char** argv) {
  CLI::App app("Pauses and resumes the GPU memory of running processes.", "lowtide");
  app.set_version_flag("--version", "lowtide " LOWTIDE_VERSION);
  app.require_subcommand(1);
  app.footer(examples + exit_code_help());
  std::vector<std::pair<CLI::App*, std::unique_ptr<Command>>> commands;
  for (const auto& each : verbs) {
    auto* subcommand = app.add_subcommand(each.name, each.summary);
    commands.emplace_back(subcommand, each.make());
    commands.back().second->declare(*subcommand);
  }
  auto words = split_words(argc, argv);
  try {
    std::reverse(words.own.begin(), words.own.end());
    app.parse(words.own);
  } catch (const CLI::Success& help) {
    // The help that was asked for is not that of the command around it.
    if (const auto leftover = first_leftover(app); leftover && leftover->stands_for_command())
      return refuse_leftover(*leftover);
    app.exit(help);
    return ExitCode::ok;
  } catch (const CLI::ParseError& error) {
    return refuse_parsed(app, error);
  }
  for (const auto& [subcommand, command] : commands) {
    if (!subcommand->parsed()) continue;
    if (words.program) command->take_program(std::move(*words.program));
    return run_verb(*command);
  }
  return ExitCode::usage;
}

}  // namespace
}  // namespace lowtide::tools

int main(int argc, char** argv) {
  try {
    return static_cast<int>(lowtide::tools::main(argc, argv));
  } catch (...) {
    std::fputs("lowtide: out of memory\n", stderr);
    return static_cast<int>(lowtide::tools::ExitCode::failed);
  }
}

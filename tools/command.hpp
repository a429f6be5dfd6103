// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tools/exit_codes.hpp"

namespace lowtide::tools {

/// One verb of the command.
class Command {
 public:
  virtual ~Command() = default;
  /// Declares options, help and examples. `app` is the verb's own and outlives the command's run.
  virtual void declare(CLI::App& app) = 0;
  /// What stands after the first "--", the "--" left out. Only a verb that starts a program takes it.
  virtual void take_program(std::vector<std::string>&&) {}
  /// Data on stdout, messages on stderr. Throws CommandError.
  virtual ExitCode run() = 0;
  /// Whether --json was given: an error then is an object on stdout too.
  virtual bool json() const { return false; }
};

/// An option whose value is kept as it was given. An empty one, as an unset variable of a script gives, is a value too:
/// the parser's own conversions take it for an absent option, or for 0.
inline CLI::Option* add_text(CLI::App& app, const std::string& name, std::optional<std::string>& value,
                             const std::string& help) {
  return app.add_option_function<std::string>(
      name, [&value](const std::string& text) { value = text; }, help);
}

std::unique_ptr<Command> make_run();
std::unique_ptr<Command> make_ps();
std::unique_ptr<Command> make_status();
std::unique_ptr<Command> make_pause();
std::unique_ptr<Command> make_resume();
std::unique_ptr<Command> make_trim();
std::unique_ptr<Command> make_phase();
std::unique_ptr<Command> make_policy();
std::unique_ptr<Command> make_env();
std::unique_ptr<Command> make_compat();
std::unique_ptr<Command> make_doctor();
std::unique_ptr<Command> make_demo();
std::unique_ptr<Command> make_trace();
std::unique_ptr<Command> make_top();

}  // namespace lowtide::tools

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

#include "allocator/policy/configuration.hpp"

namespace lowtide::tools {

struct Variable {
  std::string name;
  std::string value;  ///< never empty
};
using Variables = std::vector<Variable>;

/// --tag, --config, --set and --trace, and what they and this command's own environment make of a program's
/// environment.
class LaunchOptions {
 public:
  /// `app` is the verb's own and outlives this.
  void declare(CLI::App& app);

  /// Where the program's configuration will come from. It is read: CommandError with ExitCode::usage if it is wrong, or
  /// if the default tag's action is not known.
  ConfigurationSources check() const;
  /// What a program has to be started with, LD_PRELOAD first, each name once. CommandError if our libraries cannot be
  /// found, or their path cannot be said.
  static Variables variables(const ConfigurationSources& checked);

 private:
  ConfigurationSources sources_in_force() const;

  std::optional<std::string> tag_;
  std::optional<std::string> file_;
  std::vector<std::string> settings_;
  std::optional<std::string> trace_;
};

}  // namespace lowtide::tools

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "tools/command.hpp"
#include "tools/processes/transition.hpp"

namespace lowtide::tools {

/// What `pause` and `resume` have in common.
class TransitionCommand : public Command {
 public:
  ExitCode run() override;
  bool json() const override { return json_; }

 protected:
  explicit TransitionCommand(TransitionWish::Verb verb) : verb_(verb) {}
  void declare_common(CLI::App& app);

  bool hold_ = true;
  std::optional<std::string> timeout_;  ///< seconds, as they were given

 private:
  TransitionWish wish() const;

  TransitionWish::Verb verb_;
  std::string pid_;
  std::optional<std::string> tag_;
  bool json_ = false;
};

}  // namespace lowtide::tools

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tools/exit_codes.hpp"
#include "tools/processes/ask.hpp"

namespace lowtide::tools {

/// A pause or a resume of a process and all below it, as one: all or none.
struct TransitionWish {
  enum class Verb { pause, resume };
  Verb verb;
  std::optional<TagName> tag;
  bool hold = true;                                  ///< of a pause
  std::optional<std::chrono::milliseconds> timeout;  ///< of a pause
};

struct MemberOutcome {
  pid_t pid = 0;
  ProcessStatus before;
  std::optional<nlohmann::json> report;  ///< of a success
  std::string error;                     ///< of a failure
  ExitCode exit_code = ExitCode::ok;
  bool called_off = false;  ///< by the user; whether it had succeeded by then is not known
  bool undone = false;      ///< it succeeded or was called off, and was put back because not all succeeded
  std::string undo_error;   ///< putting it back failed
};

/// Asks all at the same time, since ranks that wait for each other on the device come to rest only together. If one
/// fails, those that changed are put back; so are all that have not answered when the descriptor `call_off`, if there
/// is one, becomes readable. Throws CommandError, with nothing changed, if a process does not answer at the start, or
/// none has the tag.
std::vector<MemberOutcome> carry_out(const std::vector<ControlSocket>& targets, const TransitionWish& wish,
                                     int call_off);

}  // namespace lowtide::tools

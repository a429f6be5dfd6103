// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "allocator/base/bytes.hpp"
#include "allocator/control/control_client.hpp"
#include "tools/exit_codes.hpp"

namespace lowtide::tools {

struct DeviceStatus {
  int device = 0;
  std::string name;
  std::string key;  ///< the same for all processes that use it; empty if not known
  std::string backend;
  std::string reason;
  Bytes free;
  Bytes total;
};

struct TagStatus {
  std::string tag;
  int device = 0;
  std::string action;
  std::string state;
  std::uint64_t blocks = 0;
  Bytes resident;
  Bytes parked;
  Bytes backup;
  Bytes slack;            ///< held on the device for no block
  std::string shared_by;  ///< "" if nobody
  std::string freshness;  ///< of the worst block; "" from a process of a version that does not say
  Bytes stale;
  Bytes residue;
  std::uint64_t version = 0;
  std::optional<std::uint64_t> updating_to;
  std::uint64_t committed = 0;
  std::uint64_t aborted = 0;
  std::uint64_t refused = 0;
  std::uint64_t repeated = 0;
};

/// Who allocated, in the words of a [[match]]; "" where it is not known.
struct CallerStatus {
  std::string python;
  std::string function;
  std::string library;
};

/// What gave live blocks their tag.
struct OriginStatus {
  std::string tag;
  std::string from;        ///< "scope", "rule" or "default"
  std::uint64_t rule = 0;  ///< counted from 1; 0 if it was none
  std::uint64_t blocks = 0;
  Bytes bytes;
  CallerStatus caller;
};

/// Memory that was asked for without a tag.
struct UntaggedStatus {
  std::uint64_t allocations = 0;
  Bytes asked;
  CallerStatus caller;
};

struct TransitionStatus {
  std::string step;  ///< "pause" or "resume"
  Bytes done;
  Bytes total;
};

/// The status object of docs/control-protocol.md.
/// The "policy" object of docs/control-protocol.md, as far as it is shown.
struct PolicyStatus {
  std::string mode;
  std::string role;   ///< "" if none
  std::string phase;  ///< said by the program, else inferred
  std::uint64_t breaches = 0;
  std::uint64_t waits = 0;
  std::uint64_t refusals = 0;
  std::vector<std::string> notes;  ///< last breaches, the last refusal, tables that cannot be had
  /// Those that its configuration declares; nothing from a process of a version that does not say.
  std::optional<std::vector<std::string>> phases;
};

struct ProcessStatus {
  pid_t pid = 0;
  std::string command;
  bool simulated = false;
  std::string default_tag;  ///< "" if there is none
  std::string gate;
  std::vector<std::string> held_tags;
  std::uint64_t captures = 0;
  std::optional<TransitionStatus> transition;  ///< the one under way
  std::vector<DeviceStatus> devices;
  std::vector<TagStatus> tags;
  std::vector<OriginStatus> origins;
  std::vector<UntaggedStatus> untagged;  ///< the largest first
  bool python_hidden = false;            ///< Python callers cannot be seen in this process
  std::optional<PolicyStatus> policy;
  Bytes backup;
  Bytes retained;
  Bytes on_disk;
  nlohmann::json raw;  ///< as it came
};

using OnProgress = std::function<void(Bytes done, Bytes total)>;

/// One question to one process. Throws CommandError for whatever went wrong, with the exit code that fits.
ProcessStatus ask_status(const ControlSocket& socket);

/// Carries out a pause or a resume and gives the report object. Waits as long as it takes, or until the descriptor
/// `call_off`, if there is one, becomes readable: then throws RequestCalledOff, and the process may have done it or
/// not.
nlohmann::json ask_transition(const ControlSocket& socket, const Request& request, const OnProgress& on_progress,
                              int call_off = -1);

struct TrimAnswer {
  Bytes given_back;
  Bytes held;
  nlohmann::json raw;  ///< as it came
};
/// Waits as long as it takes: a trim waits for a transition that runs.
TrimAnswer ask_trim(const ControlSocket& socket);

/// Waits as long as it takes: a phase waits for transitions, and for what its rules wait for.
void ask_phase(const ControlSocket& socket, const TagName& name, bool first_pauses);
/// What stands in the way of a resume of `tag`; one line each.
std::vector<std::string> ask_why(const ControlSocket& socket, const TagName& tag);

class RequestCalledOff : public CommandError {
 public:
  using CommandError::CommandError;
};

}  // namespace lowtide::tools

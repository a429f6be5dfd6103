// SPDX-License-Identifier: Apache-2.0
#include "tools/processes/transition.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <thread>

#include "tools/processes/asked.hpp"
#include "tools/view/progress_bar.hpp"

namespace lowtide::tools {
namespace {

using Verb = TransitionWish::Verb;

struct Member {
  ControlSocket socket;
  ProcessStatus before;
  MemberOutcome outcome;
};

std::vector<Member> members_of(const std::vector<ControlSocket>& targets, const TransitionWish& wish) {
  auto asked = ask_each(targets);
  if (wish.tag) asked = those_with(*wish.tag, std::move(asked));
  std::vector<Member> members;
  for (auto& each : asked) {
    members.push_back({std::move(each.socket), std::move(each.status), {}});
    members.back().outcome.pid = members.back().socket.process.pid;
  }
  return members;
}

Request request_of(const TransitionWish& wish) {
  if (wish.verb == Verb::pause) return PauseRequest{wish.tag, wish.hold, wish.timeout};
  return ResumeRequest{wish.tag};
}

void ask_member(Member& member, const Request& request, ProgressBar& bar, int call_off) noexcept {
  auto& outcome = member.outcome;
  try {
    const auto on_progress = [&](Bytes done, Bytes total) { bar.update(outcome.pid, done, total); };
    outcome.report = ask_transition(member.socket, request, on_progress, call_off);
  } catch (const RequestCalledOff& error) {
    outcome.error = fmt::format("process {}: the pause was interrupted", outcome.pid);
    outcome.exit_code = error.exit_code();
    outcome.called_off = true;
  } catch (const CommandError& error) {
    outcome.error = error.what();
    outcome.exit_code = error.exit_code();
  } catch (const std::exception& error) {
    outcome.error = error.what();
    outcome.exit_code = ExitCode::failed;
  }
}

void ask_all(std::vector<Member>& members, const TransitionWish& wish, int call_off) {
  const auto request = request_of(wish);
  ProgressBar bar(wish.verb == Verb::pause ? "pausing" : "resuming");
  std::vector<std::jthread> threads;
  threads.reserve(members.size());
  for (auto& member : members) threads.emplace_back([&] { ask_member(member, request, bar, call_off); });
}

// What brings a member back to where it was: the tags that this transition moved, or all in one if it moved all. A tag
// that was already where it should go was not ours to move.
std::vector<Request> requests_to_undo(const Member& member, const TransitionWish& wish) {
  const auto undo = [&](std::optional<TagName> tag) -> Request {
    // Who was held before the resume is held again: a program that runs must not meet parked memory.
    if (wish.verb == Verb::resume) return PauseRequest{tag, member.before.gate != "open", {}};
    return ResumeRequest{tag};
  };
  const bool pausing = wish.verb == Verb::pause;
  std::set<std::string> moved;
  std::set<std::string> untouched;
  for (const auto& status : member.before.tags) {
    if (wish.tag && status.tag != wish.tag->view()) continue;
    const bool there = pausing ? status.resident.value == 0 : status.parked.value == 0;
    (there ? untouched : moved).insert(status.tag);
  }
  for (const auto& tag : moved) untouched.erase(tag);
  const bool gate_moved = wish.verb == Verb::pause && wish.hold && member.before.gate == "open";
  if (moved.empty() && !gate_moved) return {};
  if (untouched.empty() || moved.empty()) return {undo(wish.tag)};
  std::vector<Request> requests;
  requests.reserve(moved.size());
  for (const auto& tag : moved) requests.push_back(undo(TagName::parse(tag)));
  return requests;
}

void put_back(Member& member, const TransitionWish& wish) {
  try {
    for (const auto& request : requests_to_undo(member, wish)) {
      ask_transition(member.socket, request, [](Bytes, Bytes) {});
    }
    member.outcome.undone = true;
  } catch (const CommandError& error) {
    member.outcome.undo_error = error.what();
  }
}

}  // namespace

std::vector<MemberOutcome> carry_out(const std::vector<ControlSocket>& targets, const TransitionWish& wish,
                                     int call_off) {
  auto members = members_of(targets, wish);
  ask_all(members, wish, call_off);
  const bool failed =
      std::any_of(members.begin(), members.end(), [](const Member& member) { return !member.outcome.report; });
  std::vector<MemberOutcome> outcomes;
  for (auto& member : members) {
    const bool may_have_changed = member.outcome.report || member.outcome.called_off;
    if (failed && may_have_changed) put_back(member, wish);
    member.outcome.before = std::move(member.before);
    outcomes.push_back(std::move(member.outcome));
  }
  return outcomes;
}

}  // namespace lowtide::tools

// SPDX-License-Identifier: Apache-2.0
#include "tools/processes/ask.hpp"

#include <fmt/format.h>

#include "tools/exit_codes.hpp"
#include "tools/view/counted.hpp"

namespace lowtide::tools {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;

constexpr milliseconds longest_silence{5000};

ExitCode exit_code_of(ClientError::Kind kind) {
  switch (kind) {
    case ClientError::Kind::gone: return ExitCode::not_found;
    case ClientError::Kind::permission: return ExitCode::permission;
    case ClientError::Kind::called_off:
    case ClientError::Kind::silent:
    case ClientError::Kind::broken: return ExitCode::failed;
  }
  return ExitCode::failed;
}

[[noreturn]] void throw_broken(const ControlSocket& socket, const std::string& what) {
  throw CommandError(ExitCode::failed, fmt::format("process {} gave an answer that is not of this protocol: {}",
                                                   socket.process.pid, what));
}

// The library copies and prints by recursion, and nobody needs more than a few levels.
json parse_answer(const ControlSocket& socket, const std::string& line) {
  constexpr int deepest = 32;
  return json::parse(line, [&socket](int depth, json::parse_event_t, const json&) {
    if (depth > deepest) throw_broken(socket, "it is nested too deep");
    return true;
  });
}

// The last line, checked to be a success. The process's own refusal becomes the error.
json ask(const ControlSocket& socket, const Request& request, std::optional<milliseconds> silence,
         const std::function<void(std::string_view)>& on_line, int call_off = -1) {
  auto client = ControlClient::connect(socket, longest_silence);
  if (!client) throw CommandError(exit_code_of(client.error().kind), client.error().message);
  const auto line = client->request(request, silence, on_line, call_off);
  if (!line && line.error().kind == ClientError::Kind::called_off) {
    throw RequestCalledOff(ExitCode::failed, line.error().message);
  }
  if (!line) throw CommandError(exit_code_of(line.error().kind), line.error().message);
  try {
    auto answer = parse_answer(socket, *line);
    if (answer.at("ok").get<bool>()) return answer;
    const auto& error = answer.at("error");
    const auto code = static_cast<Code>(error.at("code").get<int>());
    throw CommandError(tools::exit_code_of(code),
                       fmt::format("process {}: {} ({})", socket.process.pid, error.at("message").get<std::string>(),
                                   error.at("name").get<std::string>()));
  } catch (const json::exception& error) {
    throw_broken(socket, error.what());
  }
}

Bytes bytes_at(const json& object, const char* name) { return {object.at(name).get<std::uint64_t>()}; }

std::string text_or_empty(const json& object, const char* name) {
  const auto& value = object.at(name);
  return value.is_null() ? std::string() : value.get<std::string>();
}

DeviceStatus parse_device(const json& device) {
  return {device.at("device").get<int>(),
          device.at("name").get<std::string>(),
          device.value("key", std::string()),  // not said by an earlier version
          device.at("backend").get<std::string>(),
          device.at("reason").get<std::string>(),
          bytes_at(device, "free"),
          bytes_at(device, "total")};
}

void parse_content(const json& tag, TagStatus& status) {
  status.freshness = tag.at("freshness").get<std::string>();
  status.stale = bytes_at(tag, "bytes_stale");
  status.residue = bytes_at(tag, "bytes_residue");
  status.version = tag.at("version").get<std::uint64_t>();
  if (!tag.at("updating_to").is_null()) status.updating_to = tag.at("updating_to").get<std::uint64_t>();
  const auto& updates = tag.at("updates");
  status.committed = updates.at("committed").get<std::uint64_t>();
  status.aborted = updates.at("aborted").get<std::uint64_t>();
  status.refused = updates.at("refused").get<std::uint64_t>();
  status.repeated = updates.at("repeated").get<std::uint64_t>();
}

TagStatus parse_tag(const json& tag) {
  TagStatus status{tag.at("tag").get<std::string>(),      tag.at("device").get<int>(),
                   tag.at("action").get<std::string>(),   tag.at("state").get<std::string>(),
                   tag.at("blocks").get<std::uint64_t>(), bytes_at(tag, "bytes_resident"),
                   bytes_at(tag, "bytes_parked"),         bytes_at(tag, "bytes_backup"),
                   bytes_at(tag, "bytes_slack"),          text_or_empty(tag, "shared_by")};
  // A process that began under an earlier version says nothing of its content.
  if (tag.contains("freshness")) parse_content(tag, status);
  return status;
}

CallerStatus parse_caller(const json& object) {
  return {text_or_empty(object, "python"), text_or_empty(object, "function"), text_or_empty(object, "library")};
}

void parse_origins(const json& raw, ProcessStatus& status) {
  for (const auto& each : raw.at("origins")) {
    const auto& rule = each.at("rule");
    status.origins.push_back({each.at("tag").get<std::string>(), each.at("from").get<std::string>(),
                              rule.is_null() ? 0 : rule.get<std::uint64_t>(), each.at("blocks").get<std::uint64_t>(),
                              bytes_at(each, "bytes"), parse_caller(each)});
  }
  for (const auto& each : raw.at("untagged")) {
    status.untagged.push_back(
        {each.at("allocations").get<std::uint64_t>(), bytes_at(each, "bytes_asked"), parse_caller(each)});
  }
  status.python_hidden = raw.at("python_hidden").get<bool>();
}

std::optional<TransitionStatus> parse_transition(const json& transition) {
  if (transition.is_null()) return std::nullopt;
  return TransitionStatus{transition.at("step").get<std::string>(), bytes_at(transition, "done"),
                          bytes_at(transition, "total")};
}

PolicyStatus parse_policy(const json& raw) {
  PolicyStatus policy{raw.at("mode").get<std::string>(),
                      text_or_empty(raw, "role"),
                      text_or_empty(raw, "phase"),
                      raw.at("breaches").get<std::uint64_t>(),
                      raw.at("waits").get<std::uint64_t>(),
                      raw.at("refusals").get<std::uint64_t>(),
                      {},
                      std::nullopt};
  if (raw.contains("phases")) policy.phases = raw.at("phases").get<std::vector<std::string>>();
  if (policy.phase.empty()) policy.phase = raw.at("inferred_phase").get<std::string>();
  for (const auto& rule : raw.at("rules")) {
    if (const auto last = text_or_empty(rule, "last_breach"); !last.empty())
      policy.notes.push_back(
          fmt::format("broken {}: {}", counted(rule.at("breaches").get<std::uint64_t>(), "time"), last));
  }
  if (const auto last = text_or_empty(raw, "last_refusal"); !last.empty()) policy.notes.push_back(last);
  for (const auto& table : raw.at("ledger")) {
    if (const auto trouble = text_or_empty(table, "trouble"); !trouble.empty()) policy.notes.push_back(trouble);
  }
  return policy;
}

ProcessStatus parse_status(const json& raw) {
  ProcessStatus status;
  status.raw = raw;
  status.pid = raw.at("pid").get<pid_t>();
  status.command = raw.at("command").get<std::string>();
  status.simulated = raw.at("simulated").get<bool>();
  status.default_tag = text_or_empty(raw, "default_tag");
  status.gate = raw.at("gate").get<std::string>();
  status.held_tags = raw.at("held_tags").get<std::vector<std::string>>();
  status.captures = raw.at("captures").get<std::uint64_t>();
  status.transition = parse_transition(raw.at("transition"));
  for (const auto& device : raw.at("devices")) status.devices.push_back(parse_device(device));
  for (const auto& tag : raw.at("tags")) status.tags.push_back(parse_tag(tag));
  status.backup = bytes_at(raw.at("host"), "bytes_backup");
  status.retained = bytes_at(raw.at("host"), "bytes_retained");
  // A process that began under an earlier version has none of these.
  if (raw.contains("origins")) parse_origins(raw, status);
  if (raw.contains("policy")) status.policy = parse_policy(raw.at("policy"));
  if (raw.contains("disk")) status.on_disk = bytes_at(raw.at("disk"), "bytes_backup");
  return status;
}

void pass_on(std::string_view line, const OnProgress& on_progress) {
  const auto parsed = json::parse(line, nullptr, false);
  const auto* progress = parsed.is_object() && parsed.contains("progress") ? &parsed["progress"] : nullptr;
  if (progress == nullptr || !progress->is_object()) return;
  on_progress({progress->value("done", std::uint64_t{0})}, {progress->value("total", std::uint64_t{0})});
}

}  // namespace

ProcessStatus ask_status(const ControlSocket& socket) {
  const auto answer = ask(socket, StatusRequest{}, longest_silence, {});
  try {
    return parse_status(answer.at("status"));
  } catch (const json::exception& error) {
    throw_broken(socket, error.what());
  }
}

json ask_transition(const ControlSocket& socket, const Request& request, const OnProgress& on_progress, int call_off) {
  const auto on_line = [&](std::string_view line) { pass_on(line, on_progress); };
  try {
    return ask(socket, request, std::nullopt, on_line, call_off).at("report");
  } catch (const json::exception& error) {
    throw_broken(socket, error.what());
  }
}

void ask_phase(const ControlSocket& socket, const TagName& name, bool first_pauses) {
  ask(socket, PhaseRequest{name, first_pauses}, std::nullopt, {});
}

std::vector<std::string> ask_why(const ControlSocket& socket, const TagName& tag) {
  const auto answer = ask(socket, WhyRequest{tag}, longest_silence, {});
  try {
    return answer.at("why").at("in_the_way").get<std::vector<std::string>>();
  } catch (const json::exception& error) {
    throw_broken(socket, error.what());
  }
}

TrimAnswer ask_trim(const ControlSocket& socket) {
  const auto answer = ask(socket, TrimRequest{}, std::nullopt, {});
  try {
    const auto& trim = answer.at("trim");
    return {bytes_at(trim, "bytes_given_back"), bytes_at(trim, "bytes_held"), trim};
  } catch (const json::exception& error) {
    throw_broken(socket, error.what());
  }
}

}  // namespace lowtide::tools

// SPDX-License-Identifier: Apache-2.0
// What the policy says of itself, and its phases.
#include <algorithm>

#include "allocator/base/json_writer.hpp"
#include "allocator/policy/policy.hpp"
#include "allocator/policy/sync_plan.hpp"

namespace lowtide {
namespace {

void write_name(JsonWriter& json, const char* name, const std::optional<TagName>& text) {
  json.key(name);
  if (text)
    json.value(text->view());
  else
    json.null();
}

}  // namespace

void Policy::set_phase(const TagName& name) {
  const std::lock_guard lock(mutex_);
  phase_ = name;
}

std::optional<std::vector<Policy::OwnStep>> Policy::phase_steps(const TagName& name) const {
  const std::lock_guard lock(mutex_);
  const auto& phases = configuration_.sync.phases;
  const auto phase = std::find_if(phases.begin(), phases.end(), [&](const auto& each) { return each.name == name; });
  if (phase == phases.end()) return std::nullopt;
  std::vector<OwnStep> own;
  for (const auto& step : steps_of(configuration_, *phase)) {
    for (const auto& tag : step.tags) {
      if (tag.is_of(configuration_.sync.role)) own.push_back({step.verb, tag.tag});
    }
  }
  return own;
}

std::vector<std::string> Policy::why(const TagName& tag) {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> lines;
  const auto holdings = projected({});
  std::uint64_t version = 0;
  for (const auto& each : holdings) {
    if (each.own && each.tag == tag) version = each.version;
  }
  for (const auto& breach : breaches(rules_, {RuleEvent::resume, tag, configuration_.sync.role, version}, holdings))
    lines.push_back(to_text(breach));
  return lines;
}

std::string Policy::status_json() {
  const auto own = host_.own_holdings();
  const std::lock_guard lock(mutex_);
  JsonWriter json;
  json.begin_object().field("mode", to_text(mode()));
  write_name(json, "role", configuration_.sync.role);
  write_name(json, "phase", phase_);
  json.field("inferred_phase", inferred_phase(own)).key("phases").begin_array();
  for (const auto& each : configuration_.sync.phases) json.value(each.name.view());
  json.end_array();
  journal_.write(json, rules_);
  json.key("ledger").begin_array();
  for (const auto& table : ledger_.tables()) {
    json.begin_object().field("device", table.device).field("processes", table.processes);
    json.field("scope", table.trouble.empty() ? "this user's processes that share /dev/shm"
                                              : "this process: only the device's free memory says what others do");
    json.key("trouble");
    if (table.trouble.empty())
      json.null();
    else
      json.value(table.trouble);
    json.end_object();
  }
  return json.end_array().end_object().take();
}

}  // namespace lowtide

// SPDX-License-Identifier: Apache-2.0
#include "allocator/policy/policy_journal.hpp"

#include "allocator/base/json_writer.hpp"

namespace lowtide {
namespace {

void write_selectors(JsonWriter& json, const char* name, const std::vector<TagSelector>& selectors) {
  if (selectors.empty()) return;
  json.key(name).begin_array();
  for (const auto& each : selectors) json.value(to_text(each));
  json.end_array();
}

}  // namespace

void PolicyJournal::note(std::span<const Breach> broken) {
  for (const auto& breach : broken) {
    auto& line = lines_[title_of(*breach.rule)];
    ++line.count;
    ++breaches_;
    line.last = to_text(breach);
  }
}

void PolicyJournal::note_refusal(const std::string& why) {
  ++refusals_;
  last_refusal_ = why;
}

void PolicyJournal::write(JsonWriter& json, std::span<const Rule> rules) const {
  json.key("rules").begin_array();
  for (const auto& rule : rules) {
    const auto line = lines_.find(title_of(rule));
    json.begin_object().field("rule", rule.number);
    json.field("on", std::string(to_text(rule.on)) + ' ' + to_text(rule.tag)).field("kind", to_text(rule.kind));
    write_selectors(json, "needs_active", rule.needs_active);
    write_selectors(json, "needs_paused", rule.needs_paused);
    write_selectors(json, "needs_version", rule.needs_version);
    write_selectors(json, "needs_written", rule.needs_written);
    write_selectors(json, "bumps", rule.bumps);
    json.field("breaches", line == lines_.end() ? 0 : line->second.count);
    json.key("last_breach");
    if (line == lines_.end())
      json.null();
    else
      json.value(line->second.last);
    json.end_object();
  }
  json.end_array();
  json.field("breaches", breaches_).field("waits", waits_).field("refusals", refusals_);
  json.key("last_refusal");
  if (last_refusal_.empty())
    json.null();
  else
    json.value(last_refusal_);
}

}  // namespace lowtide

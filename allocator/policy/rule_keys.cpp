// SPDX-License-Identifier: Apache-2.0
#include "allocator/policy/rule_keys.hpp"

#include <algorithm>
#include <array>

#include "allocator/policy/words.hpp"

namespace lowtide {
namespace {

constexpr std::string_view some_tags = "a list of tags such as [\"weights\", \"trainer.optim\"]";

constexpr std::array keys_of_a_rule{
    EntryKey{"on", "resume, pause, update or commit of a tag, such as \"resume weights\" or \"resume engine.weights\"",
             "The event. A tag may stand behind the role of the processes that are meant."},
    EntryKey{
        "kind", "order or memory",
        "What a breach does in mode enforce: `order`, the default, refuses; `memory` waits up to `device.wait` and "
        "then refuses."},
    EntryKey{"needs_active", some_tags, "Are on the device, with their content."},
    EntryKey{"needs_paused", some_tags,
             "Are paused, or not there, in all processes that have them on the same device."},
    EntryKey{"needs_version", some_tags, "Have the version of the event's tag, or a later one."},
    EntryKey{"bumps", some_tags, "Get a new version with the event, in the same process."},
};

constexpr std::array keys_of_a_phase{
    EntryKey{"name", "a name: 1 to 63 of A-Z a-z 0-9 _ -", "What `lowtide_phase` and `lowtide phase` are given."},
    EntryKey{"pause", some_tags, "Are paused, before anything is resumed."},
    EntryKey{"resume", some_tags, "Are resumed, each after those that the rules want before it."},
    EntryKey{"steps", "a list of steps such as [\"pause optim,grads\", \"resume weights\", \"update weights\"]",
             "In place of `pause` and `resume`: exactly these, in this order."},
};

Failure wrong(std::string_view where, const std::string& what) {
  return fail(Error::format(Code::config, "%s%s", std::string(where).c_str(), what.c_str()));
}

Failure unknown(std::span<const EntryKey> keys, std::string_view where, std::string_view name) {
  std::vector<std::string_view> names;
  names.reserve(keys.size());
  for (const auto& each : keys) names.push_back(each.name);
  return wrong(where, "unknown key \"" + shown(name, 80) + '"' + did_you_mean(name, names));
}

Failure bad(std::span<const EntryKey> keys, std::string_view where, std::string_view name, const Value& value) {
  const auto key = std::find_if(keys.begin(), keys.end(), [&](const auto& each) { return each.name == name; });
  const auto* text = std::get_if<std::string>(&value);
  const auto what = text == nullptr ? std::string("this list") : '"' + shown(*text, 40) + '"';
  return wrong(where, std::string(name) + ": " + what + " is not " + std::string(key->allowed));
}

bool set_event(Rule& rule, std::string_view text) {
  const auto blank = text.find(' ');
  if (blank == std::string_view::npos) return false;
  const auto tag = TagSelector::parse(trimmed(text.substr(blank + 1)));
  for (const auto event : {RuleEvent::resume, RuleEvent::pause, RuleEvent::update, RuleEvent::commit}) {
    if (!tag || text.substr(0, blank) != to_text(event)) continue;
    rule.on = event;
    rule.tag = *tag;
    return true;
  }
  return false;
}

bool set_kind(Rule& rule, std::string_view text) {
  if (text != "order" && text != "memory") return false;
  rule.kind = text == "order" ? RuleKind::order : RuleKind::memory;
  return true;
}

template <class T>
bool set_all(std::vector<T>& all, const std::vector<std::string>* texts) {
  if (texts == nullptr || texts->empty()) return false;
  std::vector<T> parsed;
  for (const auto& text : *texts) {
    const auto each = T::parse(text);
    if (!each) return false;
    parsed.push_back(*each);
  }
  all = std::move(parsed);
  return true;
}

bool set(Rule& rule, std::string_view name, const std::string* text, const std::vector<std::string>* list) {
  if (name == "on") return text != nullptr && set_event(rule, *text);
  if (name == "kind") return text != nullptr && set_kind(rule, *text);
  if (name == "needs_active") return set_all(rule.needs_active, list);
  if (name == "needs_paused") return set_all(rule.needs_paused, list);
  if (name == "needs_version") return set_all(rule.needs_version, list);
  return set_all(rule.bumps, list);
}

bool set(Phase& phase, std::string_view name, const std::string* text, const std::vector<std::string>* list) {
  if (name == "pause") return set_all(phase.pause, list);
  if (name == "resume") return set_all(phase.resume, list);
  if (name == "steps") return set_all(phase.steps, list);
  const auto parsed = text == nullptr ? std::nullopt : TagName::parse(*text);
  if (parsed) phase.name = *parsed;
  return parsed.has_value();
}

template <class T>
Status set_entry(T& entry, std::span<const EntryKey> keys, std::string_view where, std::string_view name,
                 const Value& value) {
  if (std::none_of(keys.begin(), keys.end(), [&](const auto& each) { return each.name == name; }))
    return unknown(keys, where, name);
  if (set(entry, name, std::get_if<std::string>(&value), std::get_if<std::vector<std::string>>(&value))) return {};
  return bad(keys, where, name, value);
}

}  // namespace

std::span<const EntryKey> rule_keys() noexcept { return keys_of_a_rule; }
std::span<const EntryKey> phase_keys() noexcept { return keys_of_a_phase; }

Status set_rule_key(Rule& rule, std::string_view where, std::string_view key, const Value& value) {
  return set_entry(rule, keys_of_a_rule, where, key, value);
}

Status set_phase_key(Phase& phase, std::string_view where, std::string_view key, const Value& value) {
  return set_entry(phase, keys_of_a_phase, where, key, value);
}

Status check_complete(const Rule& rule, std::string_view where) {
  if (rule.tag.tag.view().empty()) return wrong(where, "has no event: say on = \"resume weights\" or the like");
  const bool asks = !rule.needs_active.empty() || !rule.needs_paused.empty() || !rule.needs_version.empty();
  if (!asks && rule.bumps.empty())
    return wrong(where, "asks for nothing: say needs_active, needs_paused, needs_version or bumps");
  return {};
}

Status check_complete(const Phase& phase, std::string_view where) {
  if (phase.name.view().empty()) return wrong(where, "has no name");
  const bool lists = !phase.pause.empty() || !phase.resume.empty();
  if (lists && !phase.steps.empty()) return wrong(where, "has lists and steps: say pause and resume, or steps");
  if (!lists && phase.steps.empty()) return wrong(where, "does nothing: say pause, resume or steps");
  return {};
}

}  // namespace lowtide

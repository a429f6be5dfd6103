// SPDX-License-Identifier: Apache-2.0
#include "allocator/policy/rules.hpp"

#include <algorithm>

namespace lowtide {
namespace {

bool concerns(const Rule& rule, const PolicyEvent& event) {
  return rule.on == event.what && rule.tag.tag == event.tag && rule.tag.is_of(event.role);
}

/// Looks at one rule's conditions over the holdings that the event can meet.
class Look {
 public:
  Look(const Rule& rule, const PolicyEvent& event, const Holdings& holdings, std::vector<Breach>& found)
      : rule_(rule), event_(event), holdings_(holdings), found_(found) {}

  void at_active() {
    for (const auto& needed : rule_.needs_active) {
      const auto all = those_meant_by(needed);
      if (all.empty()) add(needed, "active", nullptr);
      for (const auto* each : all) {
        if (each->state != TagState::active) add(needed, "active", each);
      }
    }
  }

  void at_paused() {
    for (const auto& needed : rule_.needs_paused) {
      for (const auto& each : holdings_) {
        const bool gone = is_paused(each.state) && each.bytes.value == 0;  // what came after its pause is there
        if (needed.fits(each) && shares_a_device(each) && !gone) add(needed, "paused", &each);
      }
    }
  }

  void at_version() {
    for (const auto& needed : rule_.needs_version) {
      const auto all = those_meant_by(needed);
      if (all.empty()) add(needed, "of its version", nullptr);
      for (const auto* each : all) {
        if (each->version < event_.version) add(needed, "of its version", each);
      }
    }
  }

  void at_written() {
    for (const auto& needed : rule_.needs_written) {
      for (const auto* each : those_meant_by(needed)) {
        if (is_unwritten(each->state)) add(needed, "written", each);
      }
    }
  }

 private:
  /// This process's own; those of others where it has none.
  std::vector<const Holding*> those_meant_by(const TagSelector& needed) const {
    std::vector<const Holding*> own;
    std::vector<const Holding*> others;
    for (const auto& each : holdings_) {
      if (!needed.fits(each)) continue;
      if (each.own)
        own.push_back(&each);
      else if (shares_a_device(each))
        others.push_back(&each);
    }
    return own.empty() ? others : own;
  }

  /// Whether the event's tag lies on the holding's device; one that lies nowhere yet may come anywhere.
  bool shares_a_device(const Holding& holding) const {
    bool lies_somewhere = false;
    for (const auto& each : holdings_) {
      if (!each.own || !(each.tag == event_.tag)) continue;
      if (each.device == holding.device) return true;
      lies_somewhere = true;
    }
    return !lies_somewhere;
  }

  void add(const TagSelector& needed, const char* condition, const Holding* in_the_way) {
    found_.push_back({&rule_, needed, condition, in_the_way == nullptr ? std::nullopt : std::optional(*in_the_way)});
  }

  const Rule& rule_;
  const PolicyEvent& event_;
  const Holdings& holdings_;
  std::vector<Breach>& found_;
};

Rule built_in(RuleEvent on, const char* tag) {
  Rule rule;
  rule.on = on;
  rule.tag.tag = *TagName::parse(tag);
  return rule;
}

}  // namespace

const char* to_text(TagState state) noexcept {
  switch (state) {
    case TagState::active: return "ACTIVE";
    case TagState::paused_backed: return "PAUSED_BACKED";
    case TagState::paused_discarded: return "PAUSED_DISCARDED";
    case TagState::stale: return "STALE";
    case TagState::syncing: return "SYNCING";
  }
  return "?";
}

const char* to_text(RuleEvent event) noexcept {
  switch (event) {
    case RuleEvent::resume: return "resume";
    case RuleEvent::pause: return "pause";
    case RuleEvent::update: return "update";
    case RuleEvent::commit: return "commit";
  }
  return "?";
}

const char* to_text(RuleKind kind) noexcept { return kind == RuleKind::order ? "order" : "memory"; }

std::optional<TagSelector> TagSelector::parse(std::string_view text) noexcept {
  TagSelector selector;
  if (const auto dot = text.find('.'); dot != std::string_view::npos) {
    selector.role = TagName::parse(text.substr(0, dot));
    if (!selector.role) return std::nullopt;
    text.remove_prefix(dot + 1);
  }
  const auto tag = TagName::parse(text);
  if (!tag) return std::nullopt;
  selector.tag = *tag;
  return selector;
}

std::string to_text(const TagSelector& selector) {
  return (selector.role ? std::string(selector.role->view()) + '.' : "") + std::string(selector.tag.view());
}

std::string title_of(const Rule& rule) {
  const auto what = std::string(to_text(rule.on)) + ' ' + to_text(rule.tag);
  return rule.number == 0 ? "the built-in rule (" + what + ')'
                          : "rule " + std::to_string(rule.number) + " (" + what + ')';
}

std::string to_text(const Breach& breach) {
  auto text = title_of(*breach.rule) + " needs " + to_text(breach.needed) + ' ' + breach.condition + ": ";
  if (!breach.in_the_way) return text + "no process has it";
  const auto& holding = *breach.in_the_way;
  text += holding.own ? "this process" : "process " + std::to_string(holding.pid);
  if (holding.role) text += " (" + std::string(holding.role->view()) + ')';
  text += std::string(" has it ") + to_text(holding.state) + ", version " + std::to_string(holding.version);
  return holding.bytes.value > 0 ? text + ", " + to_text(holding.bytes) : text;
}

std::vector<Rule> built_in_rules() {
  const TagSelector weights{std::nullopt, *TagName::parse("weights")};
  const TagSelector kv_cache{std::nullopt, *TagName::parse("kv_cache")};
  auto lora = built_in(RuleEvent::commit, "lora");
  lora.needs_written = {weights};
  auto cache = built_in(RuleEvent::resume, "kv_cache");
  cache.needs_written = {weights};
  auto renewal = built_in(RuleEvent::commit, "weights");
  renewal.bumps = {kv_cache};
  return {lora, cache, renewal};
}

std::vector<Breach> breaches(std::span<const Rule> rules, const PolicyEvent& event, const Holdings& holdings) {
  std::vector<Breach> found;
  for (const auto& rule : rules) {
    if (!concerns(rule, event)) continue;
    Look look(rule, event, holdings, found);
    look.at_active();
    look.at_paused();
    look.at_version();
    look.at_written();
  }
  std::stable_partition(found.begin(), found.end(),
                        [](const auto& each) { return each.rule->kind == RuleKind::order; });
  return found;
}

std::vector<TagName> bumped_by(std::span<const Rule> rules, const PolicyEvent& event) {
  std::vector<TagName> tags;
  for (const auto& rule : rules) {
    if (!concerns(rule, event)) continue;
    for (const auto& bumped : rule.bumps) {
      const bool new_one = std::find(tags.begin(), tags.end(), bumped.tag) == tags.end();
      if (bumped.is_of(event.role) && new_one) tags.push_back(bumped.tag);
    }
  }
  return tags;
}

}  // namespace lowtide

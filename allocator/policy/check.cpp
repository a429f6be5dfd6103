// SPDX-License-Identifier: Apache-2.0
#include "allocator/policy/check.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "allocator/policy/sync_plan.hpp"
#include "allocator/policy/words.hpp"

namespace lowtide {
namespace {

using Findings = std::vector<Finding>;

std::set<TagName> known_tags(const Configuration& configuration) {
  std::set<TagName> tags = configuration.tags_with_action;
  for (const auto& [tag, settings] : configuration.core.tags) tags.insert(tag);
  for (const auto& [tag, settings] : configuration.sync.tags) tags.insert(tag);
  for (const auto& match : configuration.rules) tags.insert(match.tag);
  if (configuration.default_tag) tags.insert(*configuration.default_tag);
  return tags;
}

/// Looks up the tags that rules and phases name.
class UnknownTags {
 public:
  UnknownTags(const Configuration& configuration, Findings& findings)
      : known_(known_tags(configuration)), findings_(findings) {
    for (const auto& tag : known_) names_.push_back(tag.view());
  }

  void look_at(unsigned line, const std::string& who, const std::vector<TagSelector>& named) {
    for (const auto& each : named) {
      if (known_.contains(each.tag)) continue;
      findings_.push_back({line, who + ": nothing gives the tag \"" + std::string(each.tag.view()) +
                                     "\": say what is done with it, as in tag." + std::string(each.tag.view()) +
                                     ".pause" + did_you_mean(each.tag.view(), names_)});
    }
  }

 private:
  std::set<TagName> known_;
  std::vector<std::string_view> names_;
  Findings& findings_;
};

void find_unknown_tags(const Configuration& configuration, Findings& findings) {
  UnknownTags unknown(configuration, findings);
  for (const auto& rule : configuration.sync.rules) {
    unknown.look_at(rule.line, title_of(rule), {rule.tag});
    for (const auto* named : {&rule.needs_active, &rule.needs_paused, &rule.needs_version, &rule.bumps})
      unknown.look_at(rule.line, title_of(rule), *named);
  }
  for (const auto& phase : configuration.sync.phases) {
    const auto who = "phase " + std::string(phase.name.view());
    unknown.look_at(phase.line, who, phase.pause);
    unknown.look_at(phase.line, who, phase.resume);
    for (const auto& step : phase.steps) unknown.look_at(phase.line, who, step.tags);
  }
}

/// Follows "is active only after" from rule to rule. What can be in no circle is left out first, and what was looked at
/// afterwards, so that a file of thousands of rules takes no longer than it is long.
class Circles {
 public:
  explicit Circles(const std::vector<Rule>& rules) {
    for (const auto& rule : rules) {
      if (rule.on == RuleEvent::pause || rule.needs_active.empty()) continue;
      rules_of_[rule.tag.tag].insert(&rule);
      for (const auto& needed : rule.needs_active) needing_[needed.tag].insert(&rule);
    }
    for (const auto& rule : rules) {
      if (!rules_of_.contains(rule.tag.tag)) leave_out_those_that_need(rule.tag.tag);
      for (const auto& needed : rule.needs_active) {
        if (!rules_of_.contains(needed.tag)) leave_out_those_that_need(needed.tag);
      }
    }
  }

  /// The rules of a circle that comes back to the tag of `start`, the smallest number first; none if there is none. To
  /// be asked for each rule once, in the order of their numbers: of later circles `start` is no part.
  std::vector<const Rule*> from(const Rule& start) {
    path_ = {&start};
    seen_.clear();
    const bool found = is_left(start) && follow(start);
    leave_out(start);
    return found ? path_ : std::vector<const Rule*>{};
  }

 private:
  bool is_left(const Rule& rule) const {
    const auto found = rules_of_.find(rule.tag.tag);
    return found != rules_of_.end() && found->second.contains(&rule);
  }

  bool follow(const Rule& rule) {
    for (const auto& needed : rule.needs_active) {
      if (needed.tag == path_.front()->tag.tag) return true;
      const auto next_ones = rules_of_.find(needed.tag);
      if (next_ones == rules_of_.end() || !seen_.insert(needed.tag).second) continue;
      for (const auto* next : next_ones->second) {
        path_.push_back(next);
        if (follow(*next)) return true;
        path_.pop_back();
      }
    }
    return false;
  }

  /// And those that need its tag, if no other rule is left that could lead on from there.
  void leave_out(const Rule& rule) {
    const auto found = rules_of_.find(rule.tag.tag);
    if (found == rules_of_.end() || found->second.erase(&rule) == 0 || !found->second.empty()) return;
    rules_of_.erase(found);
    leave_out_those_that_need(rule.tag.tag);
  }

  void leave_out_those_that_need(const TagName& tag) {
    std::vector<TagName> dead_ends{tag};
    while (!dead_ends.empty()) {
      const auto needing = needing_.extract(dead_ends.back());
      dead_ends.pop_back();
      if (needing.empty()) continue;
      for (const auto* rule : needing.mapped()) {
        const auto found = rules_of_.find(rule->tag.tag);
        if (found == rules_of_.end() || !leads_nowhere(*rule)) continue;
        found->second.erase(rule);
        if (!found->second.empty()) continue;
        rules_of_.erase(found);
        dead_ends.push_back(rule->tag.tag);
      }
    }
  }

  bool leads_nowhere(const Rule& rule) const {
    return std::none_of(rule.needs_active.begin(), rule.needs_active.end(),
                        [this](const auto& needed) { return rules_of_.contains(needed.tag); });
  }

  struct ByNumber {
    bool operator()(const Rule* a, const Rule* b) const { return a->number < b->number; }
  };
  using Rules = std::set<const Rule*, ByNumber>;

  std::map<TagName, Rules> rules_of_;  ///< that are left, by their own tag
  std::map<TagName, Rules> needing_;
  std::vector<const Rule*> path_;
  std::set<TagName> seen_;
};

void find_circles(const Configuration& configuration, Findings& findings) {
  const auto& rules = configuration.sync.rules;
  Circles circles(rules);
  for (const auto& rule : rules) {
    std::string text;
    for (const auto* each : circles.from(rule)) text.append(text.empty() ? "" : ", ").append(title_of(*each));
    if (text.empty()) continue;
    findings.push_back({rule.line, text + ": each needs what only the next one gives, so that none can ever happen"});
  }
}

void find_hidden_phases(const Configuration& configuration, Findings& findings) {
  std::map<TagName, unsigned> lines;
  for (const auto& phase : configuration.sync.phases) {
    const auto [first, added] = lines.emplace(phase.name, phase.line);
    if (added) continue;
    findings.push_back({phase.line, "phase " + std::string(phase.name.view()) + ": is never entered, since line " +
                                        std::to_string(first->second) + " declares one of that name"});
  }
}

void find_contradictions(const Configuration& configuration, Findings& findings) {
  for (const auto& rule : configuration.sync.rules) {
    for (const auto& active : rule.needs_active) {
      const auto& paused = rule.needs_paused;
      if (std::find(paused.begin(), paused.end(), active) == paused.end()) continue;
      findings.push_back({rule.line, title_of(rule) + ": " + to_text(active) + " cannot be active and paused at once"});
    }
  }
}

void find_lost_content(const Configuration& configuration, const std::map<std::string, unsigned>& lines,
                       Findings& findings) {
  for (const auto& [tag, settings] : configuration.core.tags) {
    const auto found = configuration.sync.tags.find(tag);
    const bool refilled = found != configuration.sync.tags.end() && found->second.refill != Refill::none;
    if (settings.pause != Action::discard || refilled || !is_persistent(configuration, tag)) continue;
    const auto* const name = tag.c_str();
    const auto line = lines.find(std::string("tag.") + name + ".pause");
    auto message = std::string("tag ") + name + ": a pause drops its content and nothing brings it back: set tag.";
    message.append(name).append(".refill to sync or reload, tag.").append(name);
    message.append(".content to scratch, or tag.").append(name).append(".pause to offload");
    findings.push_back({line == lines.end() ? 0 : line->second, std::move(message)});
  }
}

}  // namespace

std::vector<Finding> check_policy(const Configuration& configuration, const std::map<std::string, unsigned>& lines) {
  Findings findings;
  find_unknown_tags(configuration, findings);
  find_circles(configuration, findings);
  find_contradictions(configuration, findings);
  find_hidden_phases(configuration, findings);
  find_lost_content(configuration, lines, findings);
  for (const auto& phase : configuration.sync.phases) {
    for (const auto& broken : broken_by(configuration, phase)) findings.push_back({phase.line, broken});
  }
  std::stable_sort(findings.begin(), findings.end(), [](const auto& a, const auto& b) { return a.line < b.line; });
  return findings;
}

}  // namespace lowtide

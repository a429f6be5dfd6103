// SPDX-License-Identifier: Apache-2.0
#include "allocator/policy/sync_plan.hpp"

#include <algorithm>

namespace lowtide {
namespace {

void give_role(const Configuration& configuration, TagSelector& selector) {
  const auto found = configuration.sync.tags.find(selector.tag);
  if (!selector.role && found != configuration.sync.tags.end()) selector.role = found->second.role;
}

void give_roles(const Configuration& configuration, std::vector<TagSelector>& selectors) {
  for (auto& each : selectors) give_role(configuration, each);
}

std::vector<PlannedTag> planned_tags(const Configuration& configuration) {
  std::vector<PlannedTag> tags;
  for (const auto& [tag, settings] : configuration.core.tags) {
    const auto found = configuration.sync.tags.find(tag);
    const auto refill = found == configuration.sync.tags.end() ? Refill::none : found->second.refill;
    tags.push_back({{std::nullopt, tag}, settings.pause, refill});
  }
  return tags;
}

/// The tags of a phase while its steps are played. All are one process's: a rule of another role never fits it, so each
/// event comes from the role of its tag.
class Play {
 public:
  Play(const Configuration& configuration, const std::vector<PhaseStep>& steps)
      : configuration_(configuration), rules_(rules_of(configuration)) {
    for (const auto& step : steps) {
      for (const auto& tag : step.tags) add(tag, step.verb);
    }
    leave_out_unknown_conditions();
  }

  std::vector<std::string> step(const PhaseStep& step) {
    std::vector<std::string> broken;
    for (const auto& tag : step.tags) {
      auto* holding = find(tag);
      for (const auto event : events_of(step.verb)) {
        holding->own = true;
        const PolicyEvent happens{event, tag.tag, tag.role, holding->version};
        for (const auto& breach : breaches(rules_, happens, holdings_))
          broken.push_back("step \"" + to_text(step) + "\" breaks " + title_of(*breach.rule) + ", which needs " +
                           to_text(breach.needed) + ' ' + breach.condition);
        holding->own = false;
      }
      move(*holding, step.verb);
    }
    return broken;
  }

 private:
  static std::vector<RuleEvent> events_of(StepVerb verb) {
    if (verb == StepVerb::update) return {RuleEvent::update, RuleEvent::commit};
    return {verb == StepVerb::pause ? RuleEvent::pause : RuleEvent::resume};
  }

  Holding* find(const TagSelector& tag) {
    const auto found = std::find_if(holdings_.begin(), holdings_.end(),
                                    [&](const auto& each) { return each.tag == tag.tag && each.role == tag.role; });
    return found == holdings_.end() ? nullptr : &*found;
  }

  void add(const TagSelector& tag, StepVerb first) {
    if (find(tag) != nullptr) return;
    Holding holding;
    holding.role = tag.role;
    holding.tag = tag.tag;
    if (first == StepVerb::resume) holding.state = parked_state_of(tag.tag);
    holdings_.push_back(holding);
  }

  bool drops(const TagName& tag) const {
    const auto found = configuration_.core.tags.find(tag);
    return found != configuration_.core.tags.end() && found->second.pause == Action::discard;
  }

  TagState parked_state_of(const TagName& tag) const {
    return drops(tag) ? TagState::paused_discarded : TagState::paused_backed;
  }

  void move(Holding& holding, StepVerb verb) const {
    if (verb == StepVerb::pause) {
      holding.state = parked_state_of(holding.tag);
    } else if (verb == StepVerb::update) {
      holding.state = TagState::active;
      ++holding.version;
    } else if (is_paused(holding.state)) {
      const bool undefined = holding.state == TagState::paused_discarded && is_persistent(configuration_, holding.tag);
      holding.state = undefined ? TagState::stale : TagState::active;
    }
  }

  void leave_out_unknown_conditions() {
    const auto is_unknown = [this](const TagSelector& needed) {
      return std::none_of(holdings_.begin(), holdings_.end(), [&](const auto& each) { return needed.fits(each); });
    };
    for (auto& rule : rules_) {
      for (auto* needed : {&rule.needs_active, &rule.needs_paused, &rule.needs_version, &rule.needs_written})
        std::erase_if(*needed, is_unknown);
    }
  }

  const Configuration& configuration_;
  std::vector<Rule> rules_;
  Holdings holdings_;
};

}  // namespace

bool is_persistent(const Configuration& configuration, const TagName& tag) {
  return configuration.core.of(Label(tag)).content == Content::persistent;
}

std::vector<Rule> rules_of(const Configuration& configuration) {
  auto rules = built_in_rules();
  rules.insert(rules.end(), configuration.sync.rules.begin(), configuration.sync.rules.end());
  for (auto& rule : rules) {
    give_role(configuration, rule.tag);
    for (auto* needed : {&rule.needs_active, &rule.needs_paused, &rule.needs_version, &rule.needs_written, &rule.bumps})
      give_roles(configuration, *needed);
  }
  return rules;
}

std::vector<PhaseStep> steps_of(const Configuration& configuration, const Phase& phase) {
  auto steps = plan(phase, rules_of(configuration), planned_tags(configuration), configuration.sync.peak_on);
  for (auto& step : steps) give_roles(configuration, step.tags);
  return steps;
}

std::vector<std::string> broken_by(const Configuration& configuration, const Phase& phase) {
  const auto steps = steps_of(configuration, phase);
  Play play(configuration, steps);
  std::vector<std::string> all;
  for (const auto& step : steps) {
    for (auto& broken : play.step(step)) all.push_back("phase " + std::string(phase.name.view()) + ": " + broken);
  }
  return all;
}

}  // namespace lowtide

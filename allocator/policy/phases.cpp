// SPDX-License-Identifier: Apache-2.0
#include "allocator/policy/phases.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "allocator/policy/words.hpp"

namespace lowtide {
namespace {

const PlannedTag* find(std::span<const PlannedTag> tags, const TagSelector& wanted) {
  const auto found =
      std::find_if(tags.begin(), tags.end(), [&](const auto& each) { return each.tag.tag == wanted.tag; });
  return found == tags.end() ? nullptr : &*found;
}

bool is_refilled(std::span<const PlannedTag> tags, const TagSelector& wanted) {
  const auto* tag = find(tags, wanted);
  return tag != nullptr && tag->action == Action::discard && tag->refill != Refill::none;
}

bool is_dropped(std::span<const PlannedTag> tags, const TagSelector& wanted) {
  const auto* tag = find(tags, wanted);
  return tag != nullptr && tag->action == Action::discard;
}

/// The tags that a resume of each tag needs first.
std::map<TagName, std::set<TagName>> needs_of_resumes(std::span<const Rule> rules) {
  std::map<TagName, std::set<TagName>> needs;
  for (const auto& rule : rules) {
    if (rule.on != RuleEvent::resume) continue;
    for (const auto* all : {&rule.needs_active, &rule.needs_written, &rule.needs_version}) {
      for (const auto& each : *all) needs[rule.tag.tag].insert(each.tag);
    }
  }
  return needs;
}

/// Each after those that it needs; in the order of the file as far as that says nothing. A cycle, which a check finds,
/// is cut where it is met.
std::vector<TagSelector> in_order(std::vector<TagSelector> tags, std::span<const Rule> rules) {
  const auto needs = needs_of_resumes(rules);
  std::multiset<TagName> left;
  for (const auto& tag : tags) left.insert(tag.tag);
  const auto is_ready = [&](const TagSelector& tag) {
    const auto found = needs.find(tag.tag);
    return found == needs.end() || std::none_of(found->second.begin(), found->second.end(), [&](const auto& needed) {
             return left.count(needed) > (needed == tag.tag ? 1 : 0);
           });
  };
  std::vector<TagSelector> ordered;
  while (!tags.empty()) {
    auto next = std::find_if(tags.begin(), tags.end(), is_ready);
    if (next == tags.end()) next = tags.begin();
    left.erase(left.find(next->tag));
    ordered.push_back(*next);
    tags.erase(next);
  }
  return ordered;
}

void add(std::vector<PhaseStep>& steps, StepVerb verb, std::vector<TagSelector> tags) {
  if (!tags.empty()) steps.push_back({verb, std::move(tags)});
}

}  // namespace

const char* to_text(PeakOn side) noexcept { return side == PeakOn::host ? "host" : "device"; }

const char* to_text(Refill refill) noexcept {
  switch (refill) {
    case Refill::none: return "none";
    case Refill::sync: return "sync";
    case Refill::reload: return "reload";
  }
  return "?";
}

std::optional<PhaseStep> PhaseStep::parse(std::string_view text) {
  PhaseStep step;
  text = trimmed(text);
  const auto blank = text.find(' ');
  if (blank == std::string_view::npos) return std::nullopt;
  const auto verb = text.substr(0, blank);
  if (verb == "resume")
    step.verb = StepVerb::resume;
  else if (verb == "update")
    step.verb = StepVerb::update;
  else if (verb != "pause")
    return std::nullopt;
  for (const auto part : split(text.substr(blank + 1), ',')) {
    const auto tag = TagSelector::parse(trimmed(part));
    if (!tag) return std::nullopt;
    step.tags.push_back(*tag);
  }
  return step;
}

std::string to_text(const PhaseStep& step) {
  std::string text;
  for (const auto& tag : step.tags) text.append(text.empty() ? "" : ",").append(to_text(tag));
  const char* const verb = step.verb == StepVerb::pause    ? "pause "
                           : step.verb == StepVerb::resume ? "resume "
                                                           : "update ";
  return verb + text;
}

std::vector<PhaseStep> plan(const Phase& phase, std::span<const Rule> rules, std::span<const PlannedTag> tags,
                            PeakOn peak_on) {
  if (!phase.steps.empty()) return phase.steps;
  std::vector<TagSelector> first;
  std::vector<TagSelector> copied_late;
  for (const auto& tag : phase.pause) {
    const bool late = peak_on == PeakOn::device && !is_dropped(tags, tag);
    (late ? copied_late : first).push_back(tag);
  }
  std::vector<PhaseStep> steps;
  add(steps, StepVerb::pause, first);
  const auto resumes = in_order(phase.resume, rules);
  const auto last_update =
      std::find_if(resumes.rbegin(), resumes.rend(), [&](const auto& tag) { return is_refilled(tags, tag); });
  auto updates_left = last_update == resumes.rend() ? std::ptrdiff_t{0} : resumes.rend() - last_update;
  if (updates_left == 0) add(steps, StepVerb::pause, std::exchange(copied_late, {}));
  for (const auto& tag : resumes) {
    add(steps, StepVerb::resume, {tag});
    if (is_refilled(tags, tag)) add(steps, StepVerb::update, {tag});
    if (--updates_left == 0) add(steps, StepVerb::pause, std::exchange(copied_late, {}));
  }
  return steps;
}

std::string inferred_phase(const Holdings& holdings) {
  std::set<TagName> paused;
  std::set<TagName> resident;
  for (const auto& each : holdings) {
    if (each.own) (is_paused(each.state) ? paused : resident).insert(each.tag);
  }
  if (!paused.empty() && std::includes(paused.begin(), paused.end(), resident.begin(), resident.end()))
    return "all parked";
  std::string text;
  for (const auto& tag : paused) text.append(text.empty() ? "without " : ", ").append(tag.view());
  return text.empty() ? "all resident" : text;
}

}  // namespace lowtide

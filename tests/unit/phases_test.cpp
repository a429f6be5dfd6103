// SPDX-License-Identifier: Apache-2.0
#include "allocator/policy/phases.hpp"

#include "tests/catch.hpp"

namespace lowtide {
namespace {

std::vector<TagSelector> selectors(std::initializer_list<const char*> texts) {
  std::vector<TagSelector> all;
  for (const auto* text : texts) all.push_back(*TagSelector::parse(text));
  return all;
}

std::vector<std::string> texts(const std::vector<PhaseStep>& steps) {
  std::vector<std::string> all;
  for (const auto& step : steps) all.push_back(to_text(step));
  return all;
}

Phase to_rollout() {
  Phase phase;
  phase.name = *TagName::parse("to_rollout");
  phase.pause = selectors({"optim", "grads"});
  phase.resume = selectors({"kv_cache", "weights"});
  return phase;
}

const std::vector<PlannedTag> tags{{*TagSelector::parse("weights"), Action::discard, Refill::sync},
                                   {*TagSelector::parse("kv_cache"), Action::discard, Refill::none},
                                   {*TagSelector::parse("grads"), Action::discard, Refill::none}};

using Texts = std::vector<std::string>;

}  // namespace

TEST_CASE(
    "a hand-over whose peak is on the host pauses all, then brings weights back, waits for their update, and the cache "
    "last") {
  CHECK(texts(plan(to_rollout(), built_in_rules(), tags, PeakOn::host)) ==
        Texts{"pause optim,grads", "resume weights", "update weights", "resume kv_cache"});
}

TEST_CASE("a hand-over whose peak is on the device copies the trainer to the host only after the update") {
  CHECK(texts(plan(to_rollout(), built_in_rules(), tags, PeakOn::device)) ==
        Texts{"pause grads", "resume weights", "update weights", "pause optim", "resume kv_cache"});
}

TEST_CASE("with the peak on the device and nothing to update, all is paused first") {
  auto phase = to_rollout();
  phase.resume = selectors({"kv_cache"});
  CHECK(texts(plan(phase, built_in_rules(), tags, PeakOn::device)) ==
        Texts{"pause grads", "pause optim", "resume kv_cache"});
}

TEST_CASE("steps that are written down are kept") {
  Phase phase;
  phase.steps = {*PhaseStep::parse("resume kv_cache"), *PhaseStep::parse("pause  engine.a , b")};
  CHECK(texts(plan(phase, built_in_rules(), tags, PeakOn::host)) == Texts{"resume kv_cache", "pause engine.a,b"});
}

TEST_CASE("rules that need each other do not hang the plan") {
  std::vector<Rule> rules(2);
  rules[0].tag = *TagSelector::parse("a");
  rules[0].needs_active = selectors({"b"});
  rules[1].tag = *TagSelector::parse("b");
  rules[1].needs_active = selectors({"a"});
  Phase phase;
  phase.resume = selectors({"a", "b"});
  CHECK(plan(phase, rules, {}, PeakOn::host).size() == 2);
}

TEST_CASE("a step that is none is not taken for one") {
  for (const auto* text : {"", "pause", "pause ", "free a", "pause a,,b", "pause a b"}) {
    CAPTURE(text);
    CHECK_FALSE(PhaseStep::parse(text));
  }
}

TEST_CASE("a process whose program declares no phase is called by what it has paused") {
  Holding holding;
  holding.own = true;
  holding.tag = *TagName::parse("weights");
  CHECK(inferred_phase({holding}) == "all resident");
  holding.state = TagState::paused_backed;
  auto second = holding;
  second.tag = *TagName::parse("kv_cache");
  CHECK(inferred_phase({holding, second}) == "all parked");
  auto third = holding;
  third.tag = *TagName::parse("optim");
  third.state = TagState::active;
  CHECK(inferred_phase({holding, second, third}) == "without kv_cache, weights");
  second.own = false;
  CHECK(inferred_phase({second}) == "all resident");
}

}  // namespace lowtide

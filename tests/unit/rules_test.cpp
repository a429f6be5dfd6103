// SPDX-License-Identifier: Apache-2.0
#include "allocator/policy/rules.hpp"

#include "allocator/policy/rule_keys.hpp"
#include "tests/catch.hpp"

namespace lowtide {
namespace {

TagName tag(std::string_view name) { return *TagName::parse(name); }

TagSelector selector(std::string_view text) { return *TagSelector::parse(text); }

Rule rule_on(RuleEvent event, std::string_view of) {
  Rule rule;
  rule.on = event;
  rule.tag = selector(of);
  rule.number = 1;
  return rule;
}

Holding own(std::string_view name, TagState state = TagState::active, std::uint64_t version = 0) {
  return {100, true, tag("engine"), tag(name), "GPU-a", state, version, Bytes{is_paused(state) ? 0u : 1u << 30}};
}

Holding other(std::string_view name, TagState state = TagState::active, std::string device = "GPU-a") {
  return {200, false, tag("trainer"), tag(name), std::move(device), state, 0, Bytes{is_paused(state) ? 0u : 3u << 30}};
}

std::vector<Breach> at(const Rule& rule, const PolicyEvent& event, const Holdings& holdings) {
  return breaches(std::span(&rule, 1), event, holdings);
}

const PolicyEvent resume_weights{RuleEvent::resume, tag("weights"), tag("engine"), 0};

}  // namespace

TEST_CASE("the optimizer of a trainer on the same device is in the way of the engine's weights") {
  auto rule = rule_on(RuleEvent::resume, "engine.weights");
  rule.needs_paused = {selector("trainer.optim"), selector("trainer.grads")};
  rule.kind = RuleKind::memory;
  const auto weights = own("weights", TagState::paused_backed);

  const auto found = at(rule, resume_weights, {weights, other("optim"), other("grads", TagState::paused_discarded)});
  REQUIRE(found.size() == 1);
  CHECK(found[0].in_the_way->pid == 200);
  CHECK(to_text(found[0]) ==
        "rule 1 (resume engine.weights) needs trainer.optim paused: process 200 (trainer) has it ACTIVE, version 0, "
        "3.00 GiB");

  SECTION("paused or gone, it is not") {
    CHECK(at(rule, resume_weights, {weights, other("optim", TagState::paused_backed)}).empty());
    CHECK(at(rule, resume_weights, {weights}).empty());
  }
  SECTION("on another device it is not") {
    CHECK(at(rule, resume_weights, {weights, other("optim", TagState::active, "GPU-b")}).empty());
  }
  SECTION("of another role it is not") {
    auto of_another = other("optim");
    of_another.role = tag("critic");
    CHECK(at(rule, resume_weights, {weights, of_another}).empty());
  }
  SECTION("of a process whose role nobody said, it is") {
    auto of_nobody = other("optim");
    of_nobody.role.reset();
    CHECK(at(rule, resume_weights, {weights, of_nobody}).size() == 1);
  }
  SECTION("another event is free") {
    CHECK(at(rule, {RuleEvent::pause, tag("weights"), tag("engine"), 0}, {weights, other("optim")}).empty());
    CHECK(at(rule, {RuleEvent::resume, tag("weights"), tag("trainer"), 0}, {weights, other("optim")}).empty());
  }
}

TEST_CASE("what needs weights to be active is refused in every other state of them") {
  auto rule = rule_on(RuleEvent::resume, "kv_cache");
  rule.needs_active = {selector("weights")};
  const PolicyEvent event{RuleEvent::resume, tag("kv_cache"), tag("engine"), 0};
  CHECK(at(rule, event, {own("weights")}).empty());
  for (const auto state : {TagState::paused_backed, TagState::paused_discarded, TagState::stale, TagState::syncing}) {
    CAPTURE(to_text(state));
    CHECK(at(rule, event, {own("weights", state)}).size() == 1);
  }
  const auto nobody = at(rule, event, {});
  REQUIRE(nobody.size() == 1);
  CHECK(to_text(nobody[0]) == "rule 1 (resume kv_cache) needs weights active: no process has it");
}

TEST_CASE("the weights of another engine do not stand in for those of this one") {
  auto rule = rule_on(RuleEvent::resume, "kv_cache");
  rule.needs_active = {selector("weights")};
  const PolicyEvent event{RuleEvent::resume, tag("kv_cache"), tag("engine"), 0};
  CHECK(at(rule, event, {own("weights", TagState::stale), other("weights")}).size() == 1);
  CHECK(at(rule, event, {other("weights")}).empty());
}

TEST_CASE("a LoRA adapter of a newer version than the weights under it is refused") {
  auto rule = rule_on(RuleEvent::commit, "lora");
  rule.needs_version = {selector("weights")};
  const auto commit = [](std::uint64_t version) {
    return PolicyEvent{RuleEvent::commit, tag("lora"), tag("engine"), version};
  };
  CHECK(at(rule, commit(7), {own("weights", TagState::active, 7)}).empty());
  CHECK(at(rule, commit(7), {own("weights", TagState::active, 8)}).empty());
  CHECK(at(rule, commit(7), {own("weights", TagState::active, 6)}).size() == 1);
  CHECK(at(rule, commit(7), {}).size() == 1);
}

TEST_CASE("without any configuration nothing is built on stale weights") {
  const auto rules = built_in_rules();
  const PolicyEvent lora{RuleEvent::commit, tag("lora"), {}, 1};
  const PolicyEvent cache{RuleEvent::resume, tag("kv_cache"), {}, 1};
  for (const auto& event : {lora, cache}) {
    CAPTURE(event.tag.view());
    CHECK(breaches(rules, event, {own("weights", TagState::stale)}).size() == 1);
    CHECK(breaches(rules, event, {own("weights", TagState::syncing)}).size() == 1);
    CHECK(breaches(rules, event, {own("weights")}).empty());
    CHECK(breaches(rules, event, {own("weights", TagState::paused_backed)}).empty());
    CHECK(breaches(rules, event, {}).empty());
  }
  CHECK(bumped_by(rules, {RuleEvent::commit, tag("weights"), {}, 2}) == std::vector{tag("kv_cache")});
  CHECK(bumped_by(rules, {RuleEvent::update, tag("weights"), {}, 2}).empty());
}

TEST_CASE("an order that is broken comes before memory that is waited for") {
  std::vector<Rule> rules{rule_on(RuleEvent::resume, "weights"), rule_on(RuleEvent::resume, "weights")};
  rules[0].kind = RuleKind::memory;
  rules[0].needs_paused = {selector("optim")};
  rules[1].needs_active = {selector("base")};
  const auto found = breaches(rules, resume_weights, {own("weights", TagState::paused_backed), other("optim")});
  REQUIRE(found.size() == 2);
  CHECK(found[0].rule->kind == RuleKind::order);
}

TEST_CASE("a selector that is none is not taken for one") {
  for (const auto* text : {"", ".", "engine.", ".weights", "a.b.c", "engine weights", "w/"}) {
    CAPTURE(text);
    CHECK_FALSE(TagSelector::parse(text));
  }
}

TEST_CASE("a rule that is misspelled says what is allowed") {
  Rule rule;
  const auto error = [&](std::string_view key, const Value& value) {
    const auto status = set_rule_key(rule, "f:1: ", key, value);
    return status ? std::string() : std::string(status.error().message());
  };
  CHECK(error("on", std::string("resume weights")).empty());
  CHECK(error("need_active", std::string("x")) == "f:1: unknown key \"need_active\"; did you mean needs_active?");
  CHECK(error("kind", std::string("hard")) == "f:1: kind: \"hard\" is not order or memory");
  CHECK(error("on", std::string("free weights")).find("\"free weights\" is not resume, pause, update or commit") !=
        std::string::npos);
  CHECK(error("needs_active", std::vector<std::string>{"a b"}).find("this list is not a list of tags") !=
        std::string::npos);
  CHECK(check_complete(rule, "").error().message() ==
        std::string("asks for nothing: say needs_active, needs_paused, needs_version or bumps"));
}

}  // namespace lowtide

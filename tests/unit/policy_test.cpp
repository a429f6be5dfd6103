// SPDX-License-Identifier: Apache-2.0
// The policy as the answer to transitions: what it says to others, and whose turn it is.
#include "allocator/policy/policy.hpp"

#include <condition_variable>
#include <future>

#include "tests/catch.hpp"
#include "tests/unit/ledger_support.hpp"

namespace lowtide {
namespace {

using test::holding;
using test::LedgerFolder;
using test::tag;

constexpr DeviceId the_device{0};

Configuration enforcing() {
  auto configuration = built_in_configuration();
  REQUIRE(apply(configuration, "mode", "enforce"));
  return configuration;
}

/// "resume WHAT needs NEEDED paused, or waits".
Configuration waiting_for(const char* what, const char* needed) {
  auto configuration = enforcing();
  Rule rule;
  rule.number = 1;
  rule.tag.tag = tag(what);
  rule.kind = RuleKind::memory;
  rule.needs_paused = {{std::nullopt, tag(needed)}};
  configuration.sync.rules = {rule};
  return configuration;
}

/// One process with a policy.
struct Side final : PolicyHost {
  Side(const LedgerFolder& folder, const Configuration& its_configuration, Holdings its_holdings = {})
      : configuration(its_configuration), own(std::move(its_holdings)), policy(configuration, *this, folder.path()) {
    policy.content_changed();
  }
  Holdings own_holdings() override {
    auto snapshot = own;
    if (const auto call = std::exchange(on_snapshot, nullptr)) call();
    return snapshot;
  }
  std::string key_of(DeviceId) override { return "GPU-a"; }
  Bytes free_memory(DeviceId) override { return free; }
  bool gate_is_closed() override { return held; }

  void set_mode(const char* mode) {
    REQUIRE(apply(configuration, "mode", mode));
    policy.set_settings(configuration);
  }
  Result<std::unique_ptr<Admitted>> resume(const char* name, Bytes memory) {
    return policy.admit({TransitionPlan::Step::resume, tag(name), {{tag(name), the_device, memory, {}}}});
  }
  static void end(std::unique_ptr<Admitted> admitted, bool done) {
    if (admitted) admitted->ended(done, {});
  }

  Configuration configuration;
  Holdings own;
  Bytes free = 10_GiB;
  bool held = false;
  std::function<void()> on_snapshot;
  Policy policy;
};

bool is_refused(const Result<std::unique_ptr<Admitted>>& answer) {
  return !answer && answer.error().code() == Code::refused;
}
bool is_put_off(const Result<std::unique_ptr<Admitted>>& answer) {
  return !answer && answer.error().code() == Code::device_memory;
}

}  // namespace

TEST_CASE("a process whose policy is switched off stands in nobody's way any more") {
  const LedgerFolder folder;
  Side engine(folder, waiting_for("weights", "optim"));
  Side trainer(folder, enforcing(), {holding("optim", "GPU-a", 1_GiB)});
  REQUIRE(is_put_off(engine.resume("weights", 1_GiB)));
  trainer.set_mode("off");
  CHECK(engine.policy.why(tag("weights")).empty());
  SECTION("and does again as soon as it is switched on") {
    trainer.set_mode("observe");
    CHECK(engine.policy.why(tag("weights")).size() == 1);
  }
}

TEST_CASE("room that a process waits for is kept for it no more once its policy is switched off") {
  const LedgerFolder folder;
  Side engine(folder, enforcing());
  Side trainer(folder, enforcing());
  REQUIRE(is_put_off(engine.resume("weights", 12_GiB)));
  REQUIRE(is_put_off(trainer.resume("optim", 8_GiB)));
  engine.set_mode("off");
  auto admitted = trainer.resume("optim", 8_GiB);
  CHECK(admitted);
}

TEST_CASE("an older snapshot of what a process holds never replaces a newer one") {
  const LedgerFolder folder;
  Side engine(folder, waiting_for("weights", "optim"));
  Side trainer(folder, enforcing(), {holding("optim", "GPU-a", 1_GiB)});
  std::promise<void> looked;
  std::atomic<bool> newer_was_said{false};
  trainer.on_snapshot = [&] {
    trainer.own = {holding("optim", "GPU-a", {}, TagState::paused_backed)};
    looked.set_value();
    for (int i = 0; i < 300 && !newer_was_said; ++i) std::this_thread::sleep_for(std::chrono::milliseconds{1});
  };
  std::thread slow([&] { trainer.policy.content_changed(); });
  looked.get_future().wait();
  trainer.policy.content_changed();
  newer_was_said = true;
  slow.join();
  CHECK(engine.policy.why(tag("weights")).empty());
}

TEST_CASE("a resume that does not wait closes no circle with one that asks later") {
  const LedgerFolder folder;
  Side engine(folder, waiting_for("weights", "optim"), {holding("kv_cache", "GPU-a", 1_GiB)});
  Side trainer(folder, waiting_for("grads", "kv_cache"), {holding("optim", "GPU-a", 1_GiB)});
  CHECK(is_put_off(engine.resume("weights", 1_GiB)));
  CHECK(is_put_off(trainer.resume("grads", 1_GiB)));
  SECTION("but of two that wait the later one is refused") {
    engine.policy.wait(std::chrono::steady_clock::now());
    trainer.policy.wait(std::chrono::steady_clock::now());
    CHECK(is_put_off(engine.resume("weights", 1_GiB)));
    CHECK(is_refused(trainer.resume("grads", 1_GiB)));
  }
}

TEST_CASE("a resume that failed is not waited for") {
  const LedgerFolder folder;
  Side engine(folder, waiting_for("weights", "optim"), {holding("kv_cache", "GPU-a", 1_GiB)});
  Side trainer(folder, waiting_for("grads", "kv_cache"), {holding("optim", "GPU-a", 1_GiB)});
  SECTION("for room") {
    REQUIRE(is_put_off(engine.resume("lora", 12_GiB)));
    CHECK(is_put_off(trainer.resume("optim", 1_GiB)));
    engine.policy.given_up();
    CHECK(trainer.resume("optim", 1_GiB));
  }
  SECTION("for what it waited for itself") {
    REQUIRE(is_put_off(engine.resume("weights", 1_GiB)));
    engine.policy.wait(std::chrono::steady_clock::now());
    engine.policy.given_up();
    REQUIRE(is_put_off(trainer.resume("grads", 1_GiB)));
    trainer.policy.wait(std::chrono::steady_clock::now());
    CHECK(is_put_off(trainer.resume("grads", 1_GiB)));
  }
}

TEST_CASE("a rule bumps with each of the events that it may name") {
  const LedgerFolder folder;
  auto configuration = enforcing();
  const auto event = GENERATE(RuleEvent::resume, RuleEvent::pause, RuleEvent::update, RuleEvent::commit);
  Rule rule;
  rule.number = 1;
  rule.on = event;
  rule.tag.tag = tag("lora");
  rule.bumps = {{std::nullopt, tag("kv_cache")}};
  configuration.sync.rules = {rule};
  Side engine(folder, configuration);
  using Step = TransitionPlan::Step;
  using Update = Admission::Update;
  const auto bumps = [&](auto step, RuleEvent of) {
    CHECK((engine.policy.bumped_by(step, tag("lora")) == std::vector{tag("kv_cache")}) == (event == of));
  };
  bumps(Step::resume, RuleEvent::resume);
  bumps(Step::pause, RuleEvent::pause);
  bumps(Update::begin, RuleEvent::update);
  bumps(Update::commit, RuleEvent::commit);
}

TEST_CASE("a resume that grew while it waited reserves what it wants now") {
  const LedgerFolder folder;
  Side engine(folder, enforcing());
  Side trainer(folder, enforcing());
  engine.free = 1_GiB;
  CHECK(is_put_off(engine.resume("weights", 2_GiB)));
  engine.free = 10_GiB;
  auto admitted = engine.resume("weights", 8_GiB);
  REQUIRE(admitted);
  CHECK(is_put_off(trainer.resume("optim", 3_GiB)));
  Side::end(std::move(*admitted), true);
  CHECK(trainer.resume("optim", 3_GiB));
}

TEST_CASE("a resume whose room somebody took who asks nobody keeps its turn") {
  const LedgerFolder folder;
  Side engine(folder, enforcing());
  Side trainer(folder, enforcing());
  auto admitted = engine.resume("weights", 8_GiB);
  REQUIRE(admitted);
  CHECK(is_put_off(trainer.resume("optim", 8_GiB)));
  Side::end(std::move(*admitted), false);  // the driver had no memory after all
  CHECK(is_put_off(trainer.resume("optim", 8_GiB)));
  CHECK(engine.resume("weights", 8_GiB));
}

TEST_CASE("a resume of everything that must go in stages is told the stages") {
  const LedgerFolder folder;
  const auto dropped = TagState::paused_discarded;
  Side engine(folder, enforcing(),
              {holding("kv_cache", "GPU-a", {}, dropped), holding("weights", "GPU-a", {}, dropped)});
  const auto refused =
      engine.policy.admit({TransitionPlan::Step::resume,
                           {},
                           {{tag("kv_cache"), the_device, 1_GiB, 1_GiB}, {tag("weights"), the_device, 1_GiB, 1_GiB}}});
  REQUIRE(is_refused(refused));
  CHECK_THAT(refused.error().message(),
             Catch::Matchers::EndsWith(
                 "Nothing changed: resume weights alone (--tag weights), update it, then resume kv_cache"));
}

TEST_CASE("who is refused for what it can mend itself is told how") {
  const LedgerFolder folder;
  auto configuration = enforcing();
  Rule rule;
  rule.tag.tag = tag("kv_cache");
  rule.needs_active = {{std::nullopt, tag("weights")}};
  configuration.sync.rules = {rule};
  const auto answer = [&](TagState weights) {
    Side engine(
        folder, configuration,
        {holding("kv_cache", "GPU-a", {}, TagState::paused_discarded), holding("weights", "GPU-a", 1_GiB, weights)});
    const auto refused = engine.resume("kv_cache", 1_GiB);
    REQUIRE(is_refused(refused));
    return std::string(refused.error().message());
  };
  CHECK_THAT(answer(TagState::paused_backed), Catch::Matchers::EndsWith("Nothing changed: resume weights first"));
  CHECK_THAT(answer(TagState::stale), Catch::Matchers::EndsWith("Nothing changed: commit an update of weights first"));
}

TEST_CASE(
    "who is held in the middle of its work is not sent to write an update without being told what keeps it from that") {
  const LedgerFolder folder;
  Side engine(folder, enforcing(),
              {holding("kv_cache", "GPU-a", {}, TagState::paused_discarded),
               holding("weights", "GPU-a", 1_GiB, TagState::stale)});
  engine.held = true;
  const auto refused = engine.resume("kv_cache", 1_GiB);
  REQUIRE(is_refused(refused));
  CHECK_THAT(refused.error().message(),
             Catch::Matchers::EndsWith("commit an update of weights first; held in the middle of its "
                                       "work, it cannot: let it finish before a pause"));
}

TEST_CASE("a commit on stale weights is told what to update first") {
  const LedgerFolder folder;
  Side engine(folder, enforcing(), {holding("weights", "GPU-a", 1_GiB, TagState::stale)});
  const auto refused = engine.policy.admit(Admission::Update::commit, tag("lora"), 1);
  REQUIRE(!refused);
  CHECK_THAT(refused.error().message(),
             Catch::Matchers::EndsWith("Nothing changed: commit an update of weights first"));
}

TEST_CASE("each resume that breaks a rule counts, however soon it follows another") {
  const LedgerFolder folder;
  auto observing = waiting_for("weights", "optim");
  REQUIRE(apply(observing, "mode", "observe"));
  Side engine(folder, observing);
  Side trainer(folder, enforcing(), {holding("optim", "GPU-a", 1_GiB)});
  for (int i = 0; i < 3; ++i) {
    auto admitted = engine.resume("weights", 1_GiB);
    REQUIRE(admitted);
    Side::end(std::move(*admitted), true);
  }
  CHECK(engine.policy.status_json().find(R"("breaches":3,"waits")") != std::string::npos);
}

}  // namespace lowtide

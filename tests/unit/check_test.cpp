// SPDX-License-Identifier: Apache-2.0
#include "allocator/policy/check.hpp"

#include "allocator/policy/toml_file.hpp"
#include "tests/unit/configuration_file.hpp"

namespace lowtide {
namespace {

/// "LINE: MESSAGE" of each finding.
std::vector<std::string> findings(std::string_view text) {
  const Folder folder;
  const auto path = folder.file(text);
  const auto configuration = from_path(path);
  if (!configuration) return {configuration.error().message()};
  const auto lines = key_lines(path);
  std::vector<std::string> all;
  for (const auto& each : check_policy(*configuration, *lines))
    all.push_back(std::to_string(each.line) + ": " + each.message);
  return all;
}

using Texts = std::vector<std::string>;

constexpr const char* hand_over = R"([tag.weights]
role = "engine"
pause = "discard"
refill = "sync"
[tag.optim]
role = "trainer"
pause = "offload"
[[rule]]
on = "resume weights"
kind = "memory"
needs_paused = ["optim"]
[[rule]]
on = "resume kv_cache"
needs_active = ["weights"]
)";

}  // namespace

TEST_CASE("a policy that can work has no findings") {
  CHECK(findings("").empty());
  CHECK(findings(std::string(hand_over) + R"([[phase]]
name = "to_rollout"
pause = ["optim"]
resume = ["weights", "kv_cache"]
[[phase]]
name = "to_train"
pause = ["kv_cache", "weights"]
resume = ["optim"]
)")
            .empty());
}

TEST_CASE("a tag that nothing gives is found, with what was meant") {
  CHECK(findings("[[rule]]\non = \"resume kv_cache\"\nneeds_active = [\"wieghts\"]\n") ==
        Texts{"1: rule 1 (resume kv_cache): nothing gives the tag \"wieghts\": say what is done with it, as in "
              "tag.wieghts.pause; did you mean weights?"});
}

TEST_CASE("rules that wait for each other are found once") {
  CHECK(findings(R"([[rule]]
on = "resume weights"
needs_active = ["lora"]
[[rule]]
on = "resume lora"
needs_active = ["kv_cache"]
[[rule]]
on = "resume kv_cache"
needs_active = ["weights"]
)") == Texts{
           "1: rule 1 (resume weights), rule 2 (resume lora), rule 3 (resume kv_cache): each needs what only the next "
           "one gives, so that none can ever happen"});
}

TEST_CASE("circles that share rules, or lead into each other, are each found once, and a rule beside them in none") {
  const auto rule = [](const char* what, const char* needed) {
    return std::string("[[rule]]\non = \"resume ") + what + "\"\nneeds_active = [" + needed + "]\n";
  };
  CHECK(
      findings("[tag.a]\npause = \"offload\"\n" + rule("a", R"("weights")") +        // 1: leads into a circle
               rule("weights", R"("lora", "cuda_graph")") +                          // 2
               rule("lora", R"("weights")") + rule("cuda_graph", R"("kv_cache")") +  // 3, 4
               rule("kv_cache", R"("cuda_graph")") + rule("cuda_graph", R"("weights")")) ==
      Texts{
          "6: rule 2 (resume weights), rule 3 (resume lora): each needs what only the next one gives, so that none "
          "can ever happen",
          "12: rule 4 (resume cuda_graph), rule 5 (resume kv_cache): each needs what only the next one gives, so that "
          "none can ever happen"});
}

TEST_CASE(
    "a file of thousands of rules and tags is checked, and its phases are put in order, before anybody gives up") {
  constexpr int many = 3000;
  const bool closed = GENERATE(false, true);
  std::string text;
  std::string resumes;
  for (int i = 0; i < many; ++i) {
    const auto tag = "t" + std::to_string(i);
    text += "[tag." + tag + "]\npause = \"offload\"\n";
    resumes += (i == 0 ? "\"" : "\", \"") + tag;
    if (i + 1 == many && !closed) continue;
    text += "[[rule]]\non = \"resume " + tag + "\"\nneeds_active = [\"t" + std::to_string((i + 1) % many) + "\"]\n";
  }
  if (!closed) text += "[[phase]]\nname = \"all\"\nresume = [" + resumes + "\"]\n";
  CHECK(findings(text).size() == (closed ? 1 : 0));
}

TEST_CASE("a phase that another one of its name hides is found") {
  CHECK(findings("[[phase]]\nname = \"a\"\npause = [\"lora\"]\n[[phase]]\nname = \"a\"\nresume = [\"lora\"]\n") ==
        Texts{"4: phase a: is never entered, since line 1 declares one of that name"});
}

TEST_CASE("two that take turns on a device do not wait in a circle") {
  CHECK(findings(R"([[rule]]
on = "resume weights"
needs_paused = ["lora"]
[[rule]]
on = "resume lora"
needs_paused = ["weights"]
)")
            .empty());
}

TEST_CASE("a rule that wants a tag active and paused at once is found") {
  CHECK(findings("[[rule]]\non = \"resume lora\"\nneeds_active = [\"weights\"]\nneeds_paused = [\"weights\"]\n") ==
        Texts{"1: rule 1 (resume lora): weights cannot be active and paused at once"});
}

TEST_CASE("content that is dropped and never comes back is found where it is said") {
  CHECK(findings("\n[tag.weights]\nfill = \"zero\"\npause = \"discard\"\n") ==
        Texts{"4: tag weights: a pause drops its content and nothing brings it back: set tag.weights.refill to sync or "
              "reload, tag.weights.content to scratch, or tag.weights.pause to offload"});
}

TEST_CASE("a phase that resumes the cache before the weights are written is found") {
  const auto found = findings(std::string(hand_over) + R"([[phase]]
name = "to_rollout"
steps = ["pause optim", "resume weights", "resume kv_cache", "update weights"]
)");
  REQUIRE(found.size() == 2);
  CHECK(found[0] ==
        "15: phase to_rollout: step \"resume kv_cache\" breaks the built-in rule (resume kv_cache), which "
        "needs engine.weights written");
  CHECK(found[1] ==
        "15: phase to_rollout: step \"resume kv_cache\" breaks rule 2 (resume kv_cache), which needs "
        "engine.weights active");
}

TEST_CASE("a phase that resumes the engine before the trainer went is found") {
  const auto found = findings(std::string(hand_over) + R"([[phase]]
name = "to_rollout"
steps = ["resume weights", "update weights", "pause optim"]
)");
  REQUIRE(found.size() == 1);
  CHECK(found[0].find("breaks rule 1 (resume engine.weights), which needs trainer.optim paused") != std::string::npos);
}

TEST_CASE("a rule or a phase that is none is an error of the file") {
  CHECK(findings("[[rule]]\nneeds_active = [\"weights\"]\n")[0].find(
            "lowtide.toml:1: rule 1: has no event: say on = \"resume weights\"") != std::string::npos);
  CHECK(findings("rule = 3\n")[0].find("rule: is not a list of rules: write [[rule]]") != std::string::npos);
  CHECK(findings("[[phase]]\nname = \"a\"\npause = [\"weights\"]\nsteps = [\"pause weights\"]\n")[0].find(
            "phase 1: has lists and steps") != std::string::npos);
  CHECK(findings("[[phase]]\nname = \"a\"\npause = [3]\n")[0].find(
            "lowtide.toml:3: phase 1: pause: this list is not") != std::string::npos);
}

}  // namespace lowtide

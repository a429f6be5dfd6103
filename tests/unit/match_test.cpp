// SPDX-License-Identifier: Apache-2.0
#include "allocator/policy/match.hpp"

#include <sstream>

#include "allocator/policy/match_keys.hpp"
#include "allocator/policy/origins.hpp"
#include "allocator/policy/python_module.hpp"
#include "tests/unit/configuration_file.hpp"

using namespace lowtide;

namespace {

struct Facts final : AllocationFacts {
  explicit Facts(Bytes its_size = 1_MiB, std::uint64_t its_order = 1, const char* its_phase = "")
      : AllocationFacts(its_size, its_order, TagName::parse(its_phase)) {}
  const std::vector<std::string>& libraries() override {
    ++walks;
    return files;
  }
  const std::vector<PythonFrame>& python_frames() override {
    ++python_walks;
    return frames;
  }

  std::vector<std::string> files{"libc10_cuda.so", "libtorch_python.so", "python3.11"};
  std::vector<PythonFrame> frames{{"torch.nn.modules.module", "/x/torch/nn/modules/module.py", "convert"},
                                  {"vllm.lora.layers", "/x/vllm/lora/layers.py", "_create_weights"},
                                  {"vllm.worker", "/x/vllm/worker.py", "load_model"}};
  int walks = 0;
  int python_walks = 0;
};

std::vector<MatchRule> rules_of(const std::string& text) {
  const Folder folder;
  const auto configuration = from_path(folder.file(text));
  if (!configuration) FAIL(configuration.error().message());
  return configuration->rules;
}

/// The number of the rule that matches, 0 if none does.
std::size_t winner(const std::string& text, Facts facts = Facts()) {
  const auto match = first_match(rules_of(text), facts);
  return match ? match->rule : 0;
}

std::string one(const std::string& condition) { return "[[match]]\ntag = 'lora'\n" + condition + '\n'; }

bool has_init(const std::string& folder) {
  return folder == "/srv/app" || folder == "/srv/app/lora" || folder == "app";
}

}  // namespace

TEST_CASE("the first rule in the file's order wins") {
  CHECK(winner(one("size = '1MiB..'\n") + one("python = 'vllm.*'\n")) == 1);
  CHECK(winner(one("size = '2MiB..'\n") + one("python = 'vllm.*'\n") + one("order = '1'\n")) == 2);
  CHECK(winner("match = [{tag = 'a', size = '2MiB'}, {tag = 'b', size = '1MiB'}]") == 2);
  CHECK(winner("") == 0);
}

TEST_CASE("all conditions of a rule must hold") {
  const auto rule = one("python = 'vllm.*'\nsize = '1MiB'\norder = '..3'\nphase = 'train'\nlibrary = 'libc10*'\n");
  CHECK(winner(rule, Facts(1_MiB, 3, "train")) == 1);
  CHECK(winner(rule, Facts(2_MiB, 3, "train")) == 0);
  CHECK(winner(rule, Facts(1_MiB, 4, "train")) == 0);
  CHECK(winner(rule, Facts(1_MiB, 3, "rollout")) == 0);
  CHECK(winner(rule, Facts(1_MiB, 3)) == 0);
  Facts elsewhere(1_MiB, 3, "train");
  elsewhere.frames.erase(elsewhere.frames.begin() + 1, elsewhere.frames.end());
  CHECK(winner(rule, elsewhere) == 0);
  Facts other_library(1_MiB, 3, "train");
  other_library.files = {"libmine.so"};
  CHECK(winner(rule, other_library) == 0);
}

TEST_CASE("a module and a function are those of one frame, at any depth") {
  CHECK(winner(one("python = 'vllm.lora.*'\nfunction = '_create_*'")) == 1);
  CHECK(winner(one("python = 'vllm.lora.*'\nfunction = 'load_model'")) == 0);
  CHECK(winner(one("function = 'load_model'")) == 1);
  CHECK(winner(one("python = 'vllm.worker'")) == 1);
  CHECK(winner(one("python = 'vllm'")) == 0);
  CHECK(winner(one("python = '*/vllm/lora/*'")) == 1);
  CHECK(winner(one("python = '/y/*'")) == 0);
  CHECK(winner(one("library = 'libtorch_python*'")) == 1);
}

TEST_CASE("both ends of a range belong to it") {
  for (const auto& [condition, least, most] :
       {std::tuple{"size = '1MiB..4MiB'", 1_MiB, 4_MiB}, std::tuple{"size = '..4MiB'", Bytes{1}, 4_MiB},
        std::tuple{"size = ' 1MiB .. 4MiB '", 1_MiB, 4_MiB}, std::tuple{"size = '64MiB'", 64_MiB, 64_MiB}}) {
    CAPTURE(condition);
    CHECK(winner(one(condition), Facts(least)) == 1);
    CHECK(winner(one(condition), Facts(most)) == 1);
    CHECK(winner(one(condition), Facts(most + Bytes{1})) == 0);
    if (least.value > 1) CHECK(winner(one(condition), Facts(least - Bytes{1})) == 0);
  }
  CHECK(winner(one("size = '64MiB..'"), Facts(1_GiB)) == 1);
  CHECK(winner(one("order = '100..'"), Facts(1_MiB, 99)) == 0);
  CHECK(winner(one("order = 100"), Facts(1_MiB, 100)) == 1);
}

TEST_CASE("the stack is walked only for a rule that asks for it and could still match") {
  Facts facts;
  CHECK_FALSE(first_match(rules_of(one("size = '2MiB'\npython = 'vllm.*'\nlibrary = '*'")), facts));
  CHECK(facts.walks + facts.python_walks == 0);
  CHECK(first_match(rules_of(one("order = '1'") + one("python = '*'")), facts)->rule == 1);
  CHECK(facts.walks + facts.python_walks == 0);
  CHECK_FALSE(first_match(rules_of(one("library = 'libmine*'\npython = '*'")), facts));
  CHECK(facts.python_walks == 0);
}

TEST_CASE("a match says what its own patterns met") {
  Facts facts;
  const auto match = first_match(rules_of(one("function = '_create_*'\nlibrary = 'libtorch*'")), facts);
  REQUIRE(match);
  CHECK(match->caller == Caller{"vllm.lora.layers", "_create_weights", "libtorch_python.so"});
  CHECK(first_match(rules_of(one("order = '1'")), facts)->caller == Caller{});
}

TEST_CASE("the caller is the innermost frame that is not PyTorch's, and the library that asks") {
  Facts facts;
  CHECK(caller_of(facts) == Caller{"vllm.lora.layers", "_create_weights", "libc10_cuda.so"});
  facts.frames.resize(1);
  CHECK(caller_of(facts).python == "torch.nn.modules.module");
  facts.frames.clear();
  facts.files.clear();
  CHECK(caller_of(facts) == Caller{});
}

TEST_CASE("a mistake in a rule names the line and the rule") {
  const std::string good = "[[match]]\ntag = 'a'\nsize = '1MiB'\n";
  CHECK(file_error(good + "[[match]]\ntag = 'b'\npyton = 'x'") ==
        "lowtide.toml:6: match rule 2: unknown key \"pyton\"; did you mean python?");
  CHECK(file_error(good + "[[match]]\nsize = '1MiB'") == "lowtide.toml:4: match rule 2: has no tag");
  CHECK(file_error(good + "[[match]]\n") == "lowtide.toml:4: match rule 2: has no tag");
  CHECK_THAT(file_error("[[match]]\ntag = 'b'"),
             Catch::Matchers::StartsWith("lowtide.toml:1: match rule 1: has no condition: say python, "));
  CHECK(file_error("[[match]]\ntag = 'my tag'\nsize = '1MiB'") ==
        "lowtide.toml:2: match rule 1: tag: \"my tag\" is not a name: 1 to 63 of A-Z a-z 0-9 _ -");
  const auto size_error = [](const std::string& size) {
    return file_error("[[match]]\ntag = 'b'\nsize = " + size) ==
           "lowtide.toml:3: match rule 1: size: \"" + (size.front() == '\'' ? size.substr(1, size.size() - 2) : size) +
               "\" is not a range of sizes such as 64MiB.., ..1GiB or 1MiB..64MiB";
  };
  for (const auto* size : {"'..'", "''", "'2MiB..1MiB'", "'64'", "64", "'1MiB...'", "'-1MiB..'", "'>=1MiB'"}) {
    CAPTURE(size);
    CHECK(size_error(size));
  }
  for (const auto* condition :
       {"order = '0..'", "order = '..0'", "order = 'first'", "order = ['1']", "library = '/lib/x'", "python = ''",
        "function = 'a/b'", "phase = ''", "python = {}", "python = ['x']", "size.least = '1MiB'"}) {
    CAPTURE(condition);
    CHECK(file_error(one(condition)).starts_with("lowtide.toml:3: match rule 1: "));
  }
}

TEST_CASE("a match that is no list of rules says how one is written") {
  CHECK(file_error("\nmatch = 1") == "lowtide.toml:2: match: is not a list of rules: write [[match]]");
  CHECK(file_error("match = [1]") == "lowtide.toml:1: match: is not a list of rules: write [[match]]");
  CHECK(file_error("[match]\ntag = 'a'") == "lowtide.toml:1: match: is not a list of rules: write [[match]]");
  CHECK(rules_of("match = []").empty());
}

TEST_CASE("a file's module is what Python imports it by") {
  CHECK(module_of("/usr/lib/python3/site-packages/vllm/lora/layers.py", &has_init) == "vllm.lora.layers");
  CHECK(module_of("/usr/lib/python3/dist-packages/vllm/lora/__init__.py", &has_init) == "vllm.lora");
  CHECK(module_of("/a/site-packages/b/site-packages/c.py", &has_init) == "c");
  CHECK(module_of("/srv/app/lora/layers.py", &has_init) == "app.lora.layers");
  CHECK(module_of("/srv/app/lora/__init__.py", &has_init) == "app.lora");
  CHECK(module_of("/srv/main.py", &has_init) == "main");
  CHECK(module_of("app/x.py", &has_init) == "app.x");
  CHECK(module_of("main.py", &has_init) == "main");
  CHECK(module_of("<frozen importlib._bootstrap>", &has_init) == "importlib._bootstrap");
  CHECK(module_of("<string>", &has_init) == "<string>");
  CHECK(module_of("", &has_init).empty());
  CHECK(module_of("/__init__.py", &has_init).empty());
}

TEST_CASE("however many callers there are, the largest untagged ones are kept and none is lost") {
  Origins origins;
  for (std::uint64_t i = 1; i <= 100; ++i) origins.note_untagged({"m", std::to_string(i), ""}, Bytes{i});
  origins.note_untagged({"m", "99", ""}, Bytes{50});
  const auto shown = origins.untagged();
  REQUIRE(shown.size() == Origins::most_untagged + 1);
  CHECK(shown.front().caller.function == "99");
  CHECK(shown.front().asked == Bytes{149});
  CHECK(shown.front().allocations == 2);
  CHECK(shown.back().caller == Caller{});
  Bytes sum;
  for (const auto& each : shown) sum += each.asked;
  CHECK(sum == Bytes{100 * 101 / 2 + 50});
}

TEST_CASE("origins beyond the most with a caller are counted without it") {
  Origins origins;
  const auto origin = [](std::size_t i) {
    return Origin{*TagName::parse("lora"), TagSource::rule, 1, {"m", std::to_string(i), ""}};
  };
  const auto first = origins.id_of(origin(0));
  for (std::size_t i = 1; i < Origins::most_with_caller; ++i) CHECK(origins.id_of(origin(i)) != first);
  const auto beyond = origins.id_of(origin(Origins::most_with_caller));
  CHECK(beyond == origins.id_of(origin(Origins::most_with_caller + 1)));
  CHECK(origins.id_of(origin(0)) == first);
  CHECK(origins.all().at(beyond).caller == Caller{});
  CHECK(origins.all().size() == Origins::most_with_caller + 1);
}

TEST_CASE("docs/configuration.md has the table of match keys word for word") {
  std::ifstream file(LOWTIDE_SOURCE_DIR "/docs/configuration.md");
  std::stringstream text;
  text << file.rdbuf();
  for (const auto& key : match_keys()) {
    const auto row =
        "| `" + std::string(key.name) + "` | " + std::string(key.allowed) + " | " + std::string(key.help) + " |\n";
    CAPTURE(row);
    CHECK(text.str().find(row) != std::string::npos);
  }
}

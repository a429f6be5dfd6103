// SPDX-License-Identifier: Apache-2.0
// Configurations from outside, in all three spellings. What is accepted is written down again in both, and read as the
// same settings.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <set>

#include "allocator/base/unique_fd.hpp"
#include "allocator/policy/configuration.hpp"
#include "tests/catch.hpp"
#include "tests/fuzz/fuzzing.hpp"

using namespace fuzz;
using namespace lowtide;

namespace {

const std::vector<std::string> keys{"tag.weights.pause", "tag.kv_cache.fill", "tag.x-1.pause", "tag.a.fill",
                                    "device.wait",       "gate.drain",        "host.retain",   "device.slack",
                                    "backup.verify",     "unmanaged.callers", "tag.weights",   "device",
                                    "tag.my tag.pause"};
const std::vector<std::string> values{"keep",  "offload", "discard", "none",      "zero", "poison", "auto",       "20s",
                                      "500ms", "2m",      "0",       "31622401s", "-1s",  "",       "[\"libx*\"]"};

Material settings_material() {
  Material material{{"tag.kv_cache.pause:discard,tag.kv_cache.fill:poison,device.wait:20s", "host.retain:none",
                     " gate.drain : 2m ,, tag.a.pause:keep", ""},
                    {",", ":", " ", ".", "tag."}};
  material.words.insert(material.words.end(), keys.begin(), keys.end());
  material.words.insert(material.words.end(), values.begin(), values.end());
  return material;
}

Material file_material() {
  Material material{
      {"[tag.kv_cache]\npause = \"discard\"\nfill = \"poison\"\n", "[device]\nwait = \"20s\"\n",
       "[unmanaged]\ncallers = [\"libnccl*\", 'lib\"x', \"\\u00e9\\\\\"]\n", "tag.x.pause = 'keep'\n",
       "[[match]]\ntag = 'a'\npython = 'x.*'\nsize = '1MiB..'\norder = '..9'\n", "host = { retain = \"none\" }\n",
       "# nothing\n", "[gate]\ndrain = 0\n", "a = 1979-05-27T07:32:00Z\nb = 1e5\nc = [[1, 2], [{}]]\nd = '''x\ny'''\n"},
      {"[",           "]",
       "[[",          "{",
       "}",           "=",
       ".",           "\"",
       "'",           "\"\"\"",
       "'''",         "\n",
       "#",           "\\u0000",
       "\\UFFFFFFFF", "1979-13-41",
       "inf",         "nan",
       "0x",          "\xEF\xBB\xBF",
       "\xC3",        std::string(1, '\0'),
       "a.",          "= [",
       "{a="}};
  material.words.insert(material.words.end(), keys.begin(), keys.end());
  material.words.insert(material.words.end(), values.begin(), values.end());
  return material;
}

/// Good and nearly good ones, so that enough is accepted.
std::string composed_settings(Random& random) {
  std::string text;
  for (auto count = random.below(6); count > 0; --count) text += random.pick(keys) + ':' + random.pick(values) + ',';
  return text;
}

std::string composed_file(Random& random) {
  std::string text;
  for (auto count = random.below(4); count > 0; --count) {
    const auto& value = random.pick(values);
    text += random.pick(keys) + " = " + (value.rfind('[', 0) == 0 ? value : '"' + value + '"') + '\n';
  }
  return text;
}

std::string quoted(const std::string& text) {
  constexpr std::string_view hex = "0123456789abcdef";
  std::string toml = "\"";
  for (const char c : text) {
    const auto code = static_cast<unsigned char>(c);
    if (code < 0x20 || c == 0x7F)
      toml += std::string("\\u00") + hex[code >> 4] + hex[code & 15];
    else
      toml += (c == '"' || c == '\\' ? "\\" : "") + std::string(1, c);
  }
  return toml + '"';
}

struct Setting {
  std::string key;
  std::string value;
};

/// Everything but the lists. Whose action nobody said has none here either.
std::vector<Setting> settings_of(const Configuration& configuration) {
  std::vector<Setting> all;
  for (const auto& [tag, settings] : configuration.core.tags) {
    const auto prefix = "tag." + std::string(tag.view());
    if (action_is_known(configuration, tag)) all.push_back({prefix + ".pause", to_text(settings.pause)});
    all.push_back({prefix + ".fill", to_text(settings.fill)});
    all.push_back({prefix + ".store", to_text(settings.store)});
  }
  const auto milliseconds = [](std::chrono::milliseconds time) { return std::to_string(time.count()) + "ms"; };
  if (const auto wait = configuration.core.device_wait) all.push_back({"device.wait", milliseconds(*wait)});
  all.push_back({"gate.drain", milliseconds(configuration.core.gate_drain)});
  all.push_back({"device.slack", std::to_string(configuration.core.device_slack.value) + "B"});
  all.push_back({"backup.verify", configuration.backup.verify ? "true" : "false"});
  const bool retains = configuration.backup.retain == BackupSettings::Retain::automatic;
  all.push_back({"host.retain", retains ? "auto" : "none"});
  return all;
}

std::string as_settings(const Configuration& configuration) {
  std::string text;
  for (const auto& [key, value] : settings_of(configuration)) text += key + ':' + value + ',';
  return text;
}

std::string as_file(const Configuration& configuration) {
  std::string text;
  for (const auto& [key, value] : settings_of(configuration)) text += key + " = \"" + value + "\"\n";
  text += "unmanaged.callers = [";
  for (const auto& pattern : configuration.unmanaged_callers) text += quoted(pattern) + ", ";
  return text + "]\n";
}

Result<Configuration> load_settings(const std::string& text) {
  ConfigurationSources sources;
  sources.settings = text;
  return load_configuration(sources);
}

Result<Configuration> load_file(const std::string& text) {
  const UniqueFd file(::memfd_create("lowtide.toml", MFD_CLOEXEC));
  expect(::write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()), "memfd");
  ConfigurationSources sources;
  sources.file = "/proc/self/fd/" + std::to_string(file.get());
  return load_configuration(sources);
}

void check_error(const Error& error) {
  const std::string message = error.message();
  expect(error.code() == Code::config, std::string("an error of another kind: ") + message);
  const bool control =
      std::any_of(message.begin(), message.end(), [](char c) { return (c >= 0 && c < 0x20) || c == 0x7F; });
  expect(!message.empty() && !control, "a message for one line: " + shown(message));
}

/// True if it was accepted.
bool check(const std::string& text, Result<Configuration> (*load)(const std::string&)) {
  const auto loaded = load(text);
  if (!loaded) return check_error(loaded.error()), false;
  const auto file = as_file(*loaded);
  const auto again = load_file(file);
  expect(again && as_file(*again) == file, "it became " + shown(file));
  const auto settings = load_settings(as_settings(*loaded));
  expect(settings && as_settings(*settings) == as_settings(*loaded), "it became " + shown(as_settings(*loaded)));
  return true;
}

void play(const Material& material, std::string (*compose)(Random&),
          Result<Configuration> (*load)(const std::string&)) {
  int accepted = 0;
  for_each_seed([&](Random& random) {
    for (int i = 0; i < cases(2'000); ++i) {
      const auto text = random.one_in(3) ? compose(random) : mutated(random, material);
      try {
        accepted += check(text, load) ? 1 : 0;
      } catch (const std::exception& error) {
        throw std::runtime_error(shown(text) + ": " + error.what());
      }
    }
  });
  CHECK(accepted > 0);
}

}  // namespace

TEST_CASE("LOWTIDE_CONF") { play(settings_material(), composed_settings, load_settings); }

TEST_CASE("a TOML file") { play(file_material(), composed_file, load_file); }

TEST_CASE("one key set by a program: on an error nothing has changed") {
  const auto material = settings_material();
  for_each_seed([&](Random& random) {
    auto configuration = built_in_configuration();
    for (int i = 0; i < cases(5'000); ++i) {
      const auto key = random.one_in(3) ? mutated(random, material) : random.pick(keys);
      const auto value = random.one_in(3) ? mutated(random, material) : random.pick(values);
      const auto before = as_file(configuration);
      const auto status = apply(configuration, key, value);
      if (!status) check_error(status.error());
      expect(status || as_file(configuration) == before, shown(key) + " = " + shown(value) + " is half done");
      // Names that are new every time would make the text long.
      if (configuration.core.tags.size() > 20) configuration = built_in_configuration();
    }
  });
}

TEST_CASE("LOWTIDE_DEFAULT_TAG, LOWTIDE_LOG and LOWTIDE_BACKEND") {
  const Material material{{"weights", "warning", "debug", "off", "vmm+cycle"}, {"x", " ", "_", "-", "info"}};
  for_each_seed([&](Random& random) {
    for (int i = 0; i < cases(2'000); ++i) {
      ConfigurationSources sources;
      sources.default_tag = random.one_in(2) ? mutated(random, material) : "";
      sources.log = random.one_in(2) ? mutated(random, material) : "";
      sources.backend = random.one_in(2) ? mutated(random, material) : "";
      const auto loaded = load_configuration(sources);
      if (!loaded) check_error(loaded.error());
    }
  });
}

// SPDX-License-Identifier: Apache-2.0
#include "allocator/policy/configuration.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <sstream>

#include "allocator/policy/keys.hpp"
#include "allocator/policy/rule_keys.hpp"
#include "tests/unit/configuration_file.hpp"

using namespace lowtide;
using namespace std::chrono_literals;
using Catch::Matchers::EndsWith;

namespace {

TagName tag(std::string_view name) { return *TagName::parse(name); }

Result<Configuration> from_settings(std::string settings) {
  ConfigurationSources sources;
  sources.settings = std::move(settings);
  return load_configuration(sources);
}

std::string settings_error(std::string settings) {
  const auto result = from_settings(std::move(settings));
  if (result) return "(no error)";
  CHECK(result.error().code() == Code::config);
  return result.error().message();
}

}  // namespace

TEST_CASE("without any source the four usual tags have their actions") {
  const auto configuration = load_configuration({});
  REQUIRE(configuration);
  const auto& tags = configuration->core.tags;
  CHECK(tags.at(tag("weights")).pause == Action::offload);
  CHECK(tags.at(tag("lora")).pause == Action::offload);
  CHECK(tags.at(tag("cuda_graph")).pause == Action::offload);
  CHECK(tags.at(tag("kv_cache")).pause == Action::discard);
  CHECK(tags.size() == 4);
  CHECK_FALSE(configuration->core.device_wait);
  CHECK(configuration->core.gate_drain == 10s);
  CHECK(configuration->core.device_slack == 256_MiB);
  CHECK(configuration->backup.retain == BackupSettings::Retain::automatic);
  CHECK_FALSE(configuration->backup.verify);
  CHECK_FALSE(configuration->default_tag);
  CHECK(configuration->log == LogLevel::warning);
  CHECK(configuration->unmanaged_callers.front() == "libnccl*");
}

TEST_CASE("every scalar key can be set in both spellings") {
  const auto check = [](const Result<Configuration>& configuration) {
    REQUIRE(configuration);
    CHECK(configuration->core.tags.at(tag("kv_cache")).pause == Action::keep);
    CHECK(configuration->core.tags.at(tag("kv_cache")).fill == Fill::poison);
    CHECK(configuration->core.tags.at(tag("my-Tag_2")).pause == Action::discard);
    CHECK(configuration->core.tags.at(tag("my-Tag_2")).fill == Fill::zero);
    CHECK(configuration->core.tags.at(tag("my-Tag_2")).store == Place::disk);
    CHECK(configuration->core.tags.at(tag("kv_cache")).store == Place::host);
    CHECK(configuration->disk.path == "/mnt/a:b c");
    CHECK(configuration->core.device_wait == 20s);
    CHECK(configuration->core.gate_drain == 500ms);
    CHECK(configuration->core.device_slack == 1_GiB);
    CHECK(configuration->backup.retain == BackupSettings::Retain::none);
    CHECK(configuration->backup.verify);
  };
  check(
      from_settings("tag.kv_cache.pause:keep,tag.kv_cache.fill:poison, tag.my-Tag_2.pause : discard ,"
                    "tag.my-Tag_2.fill:zero,tag.my-Tag_2.store:disk,disk.path:/mnt/a:b "
                    "c,device.wait:20s,device.slack:1GiB,gate.drain:500ms,host.retain:none,"
                    "backup.verify:true,"));
  const Folder folder;
  check(from_path(
      folder.file("[tag.kv_cache]\npause = 'keep'\nfill = 'poison'\n[tag]\nmy-Tag_2 = {pause = 'discard', fill = "
                  "'zero', store = 'disk'}\n[disk]\npath = '/mnt/a:b c'\n[device]\nwait = '20s'\nslack = "
                  "'1GiB'\n[gate]\ndrain = '500ms'\n[host]\nretain = "
                  "'none'\n[backup]\nverify = true\n")));
  check(
      from_path(folder.file("tag.kv_cache.pause = 'keep'\ntag.kv_cache.fill = 'poison'\n\"tag.my-Tag_2.pause\" = "
                            "'discard'\ntag.my-Tag_2.fill = 'zero'\ntag.my-Tag_2.store = 'disk'\ndisk.path = '/mnt/a:b "
                            "c'\ndevice.wait = '20s'\ngate.drain = '500ms'\n"
                            "host.retain = 'none'\ndevice.slack = '1GiB'\nbackup.verify = 'true'\n")));
}

TEST_CASE("the folder for backups on disk is an absolute path, since programs change theirs") {
  CHECK_THAT(settings_error("disk.path:here"),
             Catch::Matchers::Contains("disk.path") && Catch::Matchers::Contains("absolute path"));
  CHECK_THAT(settings_error("disk.path:"), Catch::Matchers::Contains("absolute path"));
  CHECK_THAT(settings_error("tag.lora.store:dsik"),
             Catch::Matchers::Contains("host or disk") && Catch::Matchers::Contains("did you mean disk?"));
  CHECK(from_settings("")->disk.path.empty());
}

TEST_CASE("LOWTIDE_CONF wins over the file, and the later of two settings over the earlier") {
  const Folder folder;
  const auto path = folder.file("tag.lora.pause = 'keep'\ndevice.wait = '1s'\n");
  const auto configuration = from_path(path, "device.wait:2m,device.wait:3m");
  REQUIRE(configuration);
  CHECK(configuration->core.device_wait == 3min);
  CHECK(configuration->core.tags.at(tag("lora")).pause == Action::keep);
}

TEST_CASE("durations have a unit, except zero") {
  CHECK(from_settings("device.wait:0")->core.device_wait == 0ms);
  const Folder folder;
  CHECK(from_path(folder.file("device.wait = 0"))->core.device_wait == 0ms);
  for (const char* bad :
       {"20", "-1s", "1.5s", "s", "", "20 s", "20sec", "99999999999999999999s", "9999999999m", "1h"}) {
    CHECK_THAT(settings_error(std::string("device.wait:") + bad),
               EndsWith("is not a duration such as 20s, 500ms, 2m or 0"));
  }
  CHECK(file_error("device.wait = 20") ==
        "lowtide.toml:1: device.wait: \"20\" is not a duration such as 20s, 500ms, 2m or 0");
  CHECK(file_error("device.wait = 1.5") ==
        "lowtide.toml:1: device.wait: \"1.5\" is not a duration such as 20s, 500ms, 2m or 0");
}

TEST_CASE("sizes have a unit of two to the power of ten, except zero, and none is no limit") {
  CHECK_FALSE(built_in_configuration().backup.budget);
  CHECK(from_settings("host.budget:64GiB")->backup.budget == 64_GiB);
  CHECK(from_settings("host.budget:512MiB")->backup.budget == 512_MiB);
  CHECK(from_settings("host.budget:1048575TiB")->backup.budget == 1024_GiB * 1048575);
  CHECK(from_settings("host.budget:7B")->backup.budget == Bytes{7});
  CHECK(from_settings("host.budget:0")->backup.budget == Bytes{0});
  CHECK_FALSE(from_settings("host.budget:1GiB,host.budget:none")->backup.budget);
  const Folder folder;
  CHECK(from_path(folder.file("[host]\nbudget = '1TiB'"))->backup.budget == 1024_GiB);
  for (const char* bad : {"64", "64GB", "64G", "1.5GiB", "-1GiB", "GiB", "", "64 GiB", "64gib", "1048576TiB",
                          "99999999999999999999B", "None"}) {
    CHECK_THAT(settings_error(std::string("host.budget:") + bad),
               EndsWith("is not a size such as 64GiB or 512MiB, or none"));
  }
}

TEST_CASE("slack is a size and never without a limit, and verifying is true or false") {
  CHECK(from_settings("device.slack:0")->core.device_slack == Bytes{});
  CHECK_THAT(settings_error("device.slack:none"), EndsWith("\"none\" is not a size such as 64GiB or 512MiB, or 0"));
  CHECK_FALSE(from_settings("backup.verify:true,backup.verify:false")->backup.verify);
  for (const char* bad : {"1", "yes", "True", ""})
    CHECK(settings_error(std::string("backup.verify:") + bad).find("is not true or false") != std::string::npos);
  CHECK_THAT(settings_error("backup.verify:ture"), EndsWith("is not true or false; did you mean true?"));
}

TEST_CASE("the list of unmanaged callers replaces the default, stands in the file, and holds file names") {
  const Folder folder;
  const auto configuration = from_path(folder.file("[unmanaged]\ncallers = ['libmine*', 'libother.so']"));
  REQUIRE(configuration);
  CHECK(configuration->unmanaged_callers == std::vector<std::string>{"libmine*", "libother.so"});
  CHECK(from_path(folder.file("unmanaged.callers = []"))->unmanaged_callers.empty());
  const std::string allowed =
      "is not an array, in the file, of file name patterns without folders, such as [\"libnccl*\"]";
  CHECK(file_error("\nunmanaged.callers = 'libmine*'") == "lowtide.toml:2: unmanaged.callers: \"libmine*\" " + allowed);
  CHECK(file_error("unmanaged.callers = [1]") == "lowtide.toml:1: unmanaged.callers: this array " + allowed);
  CHECK(file_error("unmanaged.callers = ['/usr/lib/a']") == "lowtide.toml:1: unmanaged.callers: this array " + allowed);
  CHECK(settings_error("unmanaged.callers:libmine*") == "LOWTIDE_CONF: unmanaged.callers: \"libmine*\" " + allowed);
}

TEST_CASE("a bad value is named, with what is allowed and what was probably meant") {
  CHECK(settings_error("tag.kv_cache.pause:drop") ==
        "LOWTIDE_CONF: tag.kv_cache.pause: \"drop\" is not keep, offload or discard");
  CHECK(settings_error("tag.kv_cache.pause:discrad") ==
        "LOWTIDE_CONF: tag.kv_cache.pause: \"discrad\" is not keep, offload or discard; did you mean discard?");
  CHECK(settings_error("tag.x.fill:zeros") ==
        "LOWTIDE_CONF: tag.x.fill: \"zeros\" is not none, zero or poison; did you mean zero?");
  CHECK(settings_error("host.retain:Auto") ==
        "LOWTIDE_CONF: host.retain: \"Auto\" is not auto or none; did you mean auto?");
  CHECK(file_error("[tag.lora]\n\npause = ['keep']") ==
        "lowtide.toml:3: tag.lora.pause: this array is not keep, offload or discard");
  CHECK(file_error("tag.lora.pause = true") ==
        "lowtide.toml:1: tag.lora.pause: \"true\" is not keep, offload or discard");
  CHECK(file_error("tag.lora.pause = 2024-01-01") ==
        "lowtide.toml:1: tag.lora.pause: \"(a date or time)\" is not keep, offload or discard");
}

TEST_CASE("an unknown key is named, with the key that was probably meant") {
  CHECK(settings_error("tag.kv_cache.puase:keep") ==
        "LOWTIDE_CONF: unknown key \"tag.kv_cache.puase\"; did you mean tag.kv_cache.pause?");
  CHECK(settings_error("gate.drian:1s") == "LOWTIDE_CONF: unknown key \"gate.drian\"; did you mean gate.drain?");
  CHECK(settings_error("tag.weights:keep") ==
        "LOWTIDE_CONF: unknown key \"tag.weights\"; did you mean tag.weights.pause?");
  CHECK(settings_error("zzz:1") == "LOWTIDE_CONF: unknown key \"zzz\"");
  CHECK(settings_error("device:1") == "LOWTIDE_CONF: unknown key \"device\"; did you mean device.wait?");
  CHECK(settings_error(":1") == "LOWTIDE_CONF: unknown key \"\"");
  CHECK(settings_error("tag.a b.pause:keep") ==
        "LOWTIDE_CONF: tag.a b.pause: \"a b\" is not a tag name: 1 to 63 of A-Z a-z 0-9 _ -");
  CHECK(file_error("device.wait = '1s'\n[divice]\nwait = '1s'\n") ==
        "lowtide.toml:3: unknown key \"divice.wait\"; did you mean device.wait?");
  CHECK(file_error("[[roles]]\non = 'x'\n").find("unknown key \"roles\"") != std::string::npos);
  CHECK(file_error("[divice]\n") == "lowtide.toml:1: unknown key \"divice\"");
  CHECK(file_error("[tag.weights]\n[device]\n") == "(no error)");
}

TEST_CASE("of several mistakes in a file the first line's is reported") {
  CHECK(file_error("host.retain = 'x'\ndevice.wait = 'y'\n") ==
        "lowtide.toml:1: host.retain: \"x\" is not auto or none");
}

TEST_CASE("a setting without a colon is named") {
  CHECK(settings_error("device.wait=20s") ==
        "LOWTIDE_CONF: \"device.wait=20s\" is not key:value, as in tag.kv_cache.pause:discard");
}

TEST_CASE("what is wrong with a TOML file is one line with its number") {
  for (const char* text :
       {"a = \n", "\n\n[tag\n", "x = 'a\nb'\n", "a = 1\na = 2\n", "bad = \"\xFF\xFE\"\n", "\xFF\xFE\x00"}) {
    const auto message = file_error(text);
    CAPTURE(text, message);
    CHECK(message.starts_with("lowtide.toml:"));
    CHECK(message.find('\n') == std::string::npos);
  }
  CHECK(file_error("\n\n[tag\n").starts_with("lowtide.toml:3:"));
  CHECK(file_error(std::string(5000, '[')).starts_with("lowtide.toml:1:"));
}

TEST_CASE("files that are no configuration files are refused in one line") {
  const Folder folder;
  const auto error = [](const std::string& path) {
    const auto result = from_path(path);
    REQUIRE_FALSE(result);
    CHECK(result.error().code() == Code::config);
    return std::string(result.error().message());
  };
  CHECK_THAT(error(folder.path() + "/absent"), EndsWith("/absent: No such file or directory"));
  CHECK_THAT(error(folder.path()), EndsWith(": is a directory"));
  CHECK_THAT(error("/dev/zero"), EndsWith(": is not a regular file"));
  CHECK_THAT(error(folder.file(std::string((1 << 20) + 1, '#'))), EndsWith(": is larger than 1 MiB"));
  const auto fifo = folder.path() + "/fifo";
  REQUIRE(::mkfifo(fifo.c_str(), 0600) == 0);
  CHECK_THAT(error(fifo), EndsWith(": is not a regular file"));
  const auto long_path = "/tmp/" + std::string(300, 'x');
  CHECK_THAT(error(long_path), EndsWith(": File name too long"));
  if (::geteuid() != 0) {
    const auto secret = folder.file("");
    ::chmod(secret.c_str(), 0);
    CHECK_THAT(error(secret), EndsWith(": Permission denied"));
    ::chmod(secret.c_str(), 0600);
  }
  CHECK(from_path(folder.file("")));
}

TEST_CASE("a hostile value cannot break the line or fill it") {
  const auto message = settings_error("tag.x.pause:a\nb\x1b[31m" + std::string(1000, 'z'));
  CHECK(message.find('\n') == std::string::npos);
  CHECK(message.find('\x1b') == std::string::npos);
  CHECK_THAT(message, EndsWith("is not keep, offload or discard"));
  CHECK(settings_error(std::string(100'000, 'k') + ":1").starts_with("LOWTIDE_CONF: unknown key \"kkk"));
}

TEST_CASE("a default tag is a tag name, and its action may be unknown") {
  ConfigurationSources sources;
  sources.default_tag = "weights";
  auto configuration = load_configuration(sources);
  REQUIRE(configuration);
  CHECK(configuration->default_tag == tag("weights"));
  CHECK(action_is_known(*configuration, tag("weights")));
  CHECK_FALSE(action_is_known(*configuration, tag("other")));
  sources.default_tag = "a b";
  CHECK(load_configuration(sources).error().message() ==
        std::string("LOWTIDE_DEFAULT_TAG: \"a b\" is not a tag name: 1 to 63 of A-Z a-z 0-9 _ -"));
}

TEST_CASE("only a configured pause makes an action known, a fill does not") {
  CHECK_FALSE(action_is_known(*from_settings("tag.mine.fill:zero"), tag("mine")));
  CHECK(action_is_known(*from_settings("tag.mine.pause:offload"), tag("mine")));
}

TEST_CASE("a default tag is fit for use once its action is said") {
  CHECK(check_default_tag(built_in_configuration()));
  ConfigurationSources sources;
  sources.default_tag = "kv_cache";
  CHECK(check_default_tag(*load_configuration(sources)));
  sources.default_tag = "mine";
  auto configuration = load_configuration(sources);
  REQUIRE(configuration);
  const auto refused = check_default_tag(*configuration);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code() == Code::config);
  CHECK_THAT(refused.error().message(),
             EndsWith("\"mine\" is not known: set tag.mine.pause to offload, discard or keep"));
  REQUIRE(apply(*configuration, "tag.mine.pause", "discard"));
  CHECK(check_default_tag(*configuration));
}

TEST_CASE("a log level is one of five words") {
  ConfigurationSources sources;
  sources.log = "debug";
  CHECK(load_configuration(sources)->log == LogLevel::debug);
  sources.log = "off";
  CHECK(load_configuration(sources)->log == LogLevel::off);
  sources.log = "warn";
  CHECK(load_configuration(sources).error().message() ==
        std::string("LOWTIDE_LOG: \"warn\" is not off, error, warning, info or debug"));
  sources.log = "debgu";
  CHECK_THAT(load_configuration(sources).error().message(), EndsWith("; did you mean debug?"));
}

TEST_CASE("a backend is one of four words") {
  ConfigurationSources sources;
  CHECK(load_configuration(sources)->backend.empty());
  for (const char* word : {"vmm", "vmm+cycle", "recreate", "off"}) {
    sources.backend = word;
    CHECK(load_configuration(sources)->backend == word);
  }
  sources.backend = "recrate";
  CHECK(load_configuration(sources).error().message() ==
        std::string("LOWTIDE_BACKEND: \"recrate\" is not vmm, vmm+cycle, recreate or off; did you mean recreate?"));
}

TEST_CASE("a key set at run time is checked as in the file, and a refused one changes nothing") {
  auto configuration = built_in_configuration();
  CHECK(apply(configuration, "tag.kv_cache.pause", "offload"));
  CHECK(configuration.core.tags.at(tag("kv_cache")).pause == Action::offload);
  const auto status = apply(configuration, "tag.new.pause", "dsicard");
  REQUIRE_FALSE(status);
  CHECK(status.error().message() ==
        std::string("tag.new.pause: \"dsicard\" is not keep, offload or discard; did you mean discard?"));
  CHECK_FALSE(configuration.core.tags.contains(tag("new")));
  CHECK_FALSE(apply(configuration, "unmanaged.callers", "x"));
  CHECK_FALSE(apply(configuration, "", ""));
}

TEST_CASE("the environment gives the sources") {
  ::setenv("LOWTIDE_CONFIG", "/a/b.toml", 1);
  ::setenv("LOWTIDE_CONF", "device.wait:1s", 1);
  ::setenv("LOWTIDE_DEFAULT_TAG", "lora", 1);
  ::setenv("LOWTIDE_LOG", "info", 1);
  ::setenv("LOWTIDE_BACKEND", "off", 1);
  ::setenv("LOWTIDE_ROLE", "engine", 1);
  ::setenv("LOWTIDE_TRACE", "/a/%p.ltt", 1);
  ::setenv("LOWTIDE_METRICS", "/a/%p.prom", 1);
  const auto sources = sources_from_environment();
  CHECK(sources.file == "/a/b.toml");
  CHECK(sources.settings == "device.wait:1s");
  CHECK(sources.default_tag == "lora");
  CHECK(sources.log == "info");
  CHECK(sources.backend == "off");
  CHECK(sources.role == "engine");
  CHECK(sources.trace == "/a/%p.ltt");
  CHECK(sources.metrics == "/a/%p.prom");
  for (const char* name : {"LOWTIDE_CONFIG", "LOWTIDE_CONF", "LOWTIDE_DEFAULT_TAG", "LOWTIDE_LOG", "LOWTIDE_BACKEND",
                           "LOWTIDE_ROLE", "LOWTIDE_TRACE", "LOWTIDE_METRICS"})
    ::unsetenv(name);
  CHECK_FALSE(sources_from_environment().file);
}

TEST_CASE("docs/configuration.md has the table of keys word for word") {
  std::ifstream file(LOWTIDE_SOURCE_DIR "/docs/configuration.md");
  std::stringstream text;
  text << file.rdbuf();
  for (const auto keys : configuration_keys()) {
    for (const auto& key : keys) {
      const auto row = "| `" + std::string(key.name) + "` | " + std::string(key.allowed) + " | " +
                       std::string(key.fallback) + " | " + std::string(key.help) + " |\n";
      CAPTURE(row);
      CHECK(text.str().find(row) != std::string::npos);
    }
  }
  for (const auto keys : {rule_keys(), phase_keys()}) {
    for (const auto& key : keys) {
      const auto row =
          "| `" + std::string(key.name) + "` | " + std::string(key.allowed) + " | " + std::string(key.help) + " |\n";
      CAPTURE(row);
      CHECK(text.str().find(row) != std::string::npos);
    }
  }
  for (const auto& pattern : built_in_configuration().unmanaged_callers) {
    CAPTURE(pattern);
    CHECK(text.str().find('"' + pattern + '"') != std::string::npos);
  }
}

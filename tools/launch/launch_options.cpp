// SPDX-License-Identifier: Apache-2.0
#include "tools/launch/launch_options.hpp"

#include <fmt/format.h>

#include <filesystem>

#include "allocator/base/env.hpp"
#include "tools/command.hpp"
#include "tools/installation.hpp"

namespace lowtide::tools {
namespace {

// "K=V" of --set, as LOWTIDE_CONF spells it. Checked alone first, so that the message names the option.
std::string checked_setting(const std::string& setting) {
  const auto equals = setting.find('=');
  if (equals == std::string::npos) {
    throw CommandError(ExitCode::usage,
                       fmt::format("--set {}: not KEY=VALUE, as in tag.kv_cache.pause=discard", setting));
  }
  const auto key = setting.substr(0, equals);
  const auto value = setting.substr(equals + 1);
  if (value.find(',') != std::string::npos) {
    throw CommandError(ExitCode::usage,
                       fmt::format("--set {}: a value with a comma can only be said in a file (--config)", setting));
  }
  auto scratch = built_in_configuration();
  if (const auto status = apply(scratch, key, value); !status) {
    throw CommandError(ExitCode::usage, fmt::format("--set: {}", status.error().message()));
  }
  return fmt::format("{}:{}", key, value);
}

std::string whole_path(const char* option, const std::string& file) {
  if (file.empty()) throw CommandError(ExitCode::usage, fmt::format("{} needs the path of a file, not \"\"", option));
  std::error_code error;
  auto path = std::filesystem::absolute(file, error);
  if (error) throw CommandError(ExitCode::usage, fmt::format("{} {}: {}", option, file, error.message()));
  return path.native();
}

void refuse_unknown_action(const Configuration& configuration) {
  if (!configuration.default_tag || action_is_known(configuration, *configuration.default_tag)) return;
  const auto tag = configuration.default_tag->view();
  throw CommandError(ExitCode::usage, fmt::format("what a pause does with the tag \"{}\" is not known; say it: "
                                                  "--set tag.{}.pause=offload (or discard, or keep)",
                                                  tag, tag));
}

}  // namespace

void LaunchOptions::declare(CLI::App& app) {
  add_text(app, "--tag", tag_, "The tag of what the program allocates outside any scope (LOWTIDE_DEFAULT_TAG)")
      ->type_name("TAG");
  add_text(app, "--config", file_, "A configuration file (LOWTIDE_CONFIG), see docs/configuration.md")
      ->type_name("FILE");
  app.add_option("--set", settings_, "A setting, may be repeated; wins over the file")
      ->type_name("KEY=VALUE")
      ->expected(1)
      ->take_all();
  add_text(
      app, "--trace", trace_,
      "Record what happens to memory, for `lowtide trace`; %p in it is the process, which leaves no file if it never "
      "reaches a GPU (LOWTIDE_TRACE)")
      ->type_name("FILE");
}

ConfigurationSources LaunchOptions::check() const {
  auto sources = sources_in_force();
  const auto configuration = load_configuration(sources);
  if (!configuration) throw CommandError(ExitCode::usage, configuration.error().message());
  refuse_unknown_action(*configuration);
  return sources;
}

Variables LaunchOptions::variables(const ConfigurationSources& sources) {
  Variables all;
  const auto add = [&all](const char* name, const std::string& value) {
    if (!value.empty()) all.push_back({name, value});
  };
  add("LD_PRELOAD", with_preload(env("LD_PRELOAD").value_or(""), preload_library()));
  add("LOWTIDE_CONFIG", sources.file.value_or(""));
  add("LOWTIDE_CONF", sources.settings);
  add("LOWTIDE_DEFAULT_TAG", sources.default_tag);
  add("LOWTIDE_LOG", sources.log);
  add("LOWTIDE_BACKEND", sources.backend);
  add("LOWTIDE_ROLE", sources.role);
  add("LOWTIDE_TRACE", sources.trace);
  add("LOWTIDE_METRICS", sources.metrics);
  for (const char* name : {"LOWTIDE_RUNTIME_DIR", "LOWTIDE_REQUIRE"}) add(name, std::string(env(name).value_or("")));
  return all;
}

ConfigurationSources LaunchOptions::sources_in_force() const {
  auto sources = sources_from_environment();
  // The program may change its folder before it reads the file.
  if (file_) sources.file = whole_path("--config", *file_);
  for (const auto& setting : settings_) {
    sources.settings += (sources.settings.empty() ? "" : ",") + checked_setting(setting);
  }
  if (tag_ && tag_->empty()) throw CommandError(ExitCode::usage, "--tag needs the name of a tag, not \"\"");
  if (tag_) sources.default_tag = *tag_;
  if (trace_) sources.trace = whole_path("--trace", *trace_);
  return sources;
}

}  // namespace lowtide::tools

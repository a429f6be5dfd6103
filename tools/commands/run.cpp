// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "allocator/base/env.hpp"
#include "allocator/control/socket_directory.hpp"
#include "allocator/policy/configuration.hpp"
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

std::string whole_path(const std::string& file) {
  if (file.empty()) throw CommandError(ExitCode::usage, "--config needs the path of a file, not \"\"");
  std::error_code error;
  auto path = std::filesystem::absolute(file, error);
  if (error) throw CommandError(ExitCode::usage, fmt::format("--config {}: {}", file, error.message()));
  return path.native();
}

void set_variable(const char* name, const std::string& value) {
  if (!value.empty()) ::setenv(name, value.c_str(), 1);
}

class Run final : public Command {
 public:
  void declare(CLI::App& app) override {
    add_text(app, "--tag", tag_, "The tag of what the program allocates outside any scope (LOWTIDE_DEFAULT_TAG)")
        ->type_name("TAG");
    add_text(app, "--config", file_, "A configuration file (LOWTIDE_CONFIG), see docs/configuration.md")
        ->type_name("FILE");
    app.add_option("--set", settings_, "A setting, may be repeated; wins over the file")
        ->type_name("KEY=VALUE")
        ->expected(1)
        ->take_all();
    app.prefix_command();
    app_ = &app;
    app.footer(
        "CMD, the program and its arguments, stands after the options: lowtide run [OPTIONS] -- CMD...\n"
        "The program replaces this command: its exit code and signals are its own. Without --tag only memory inside\n"
        "a scope (lowtide.h) is managed. 127: CMD is not found; 126: it cannot be executed.\n\n"
        "Examples:\n"
        "  lowtide run --tag weights -- python serve.py --port 8000\n"
        "  lowtide run --tag work --set tag.work.pause=offload -- ./train\n"
        "  lowtide run --config lowtide.toml -- torchrun --nproc-per-node 8 train.py\n\n" +
        exit_code_help());
  }

  void take_program(std::vector<std::string>&& words) override { program_ = std::move(words); }

  ExitCode run() override {
    const auto command = command_words();
    const auto sources = sources_in_force();
    const auto configuration = load_configuration(sources);
    if (!configuration) throw CommandError(ExitCode::usage, configuration.error().message());
    refuse_unknown_action(*configuration);
    // A process that nobody can reach later would be a surprise after hours.
    if (const auto folder = make_socket_directory(); !folder) {
      throw CommandError(ExitCode::permission, folder.error().message());
    }
    set_variable("LD_PRELOAD", with_preload(env("LD_PRELOAD").value_or(""), preload_library()));
    set_variable("LOWTIDE_CONFIG", sources.file.value_or(""));
    set_variable("LOWTIDE_CONF", sources.settings);
    set_variable("LOWTIDE_DEFAULT_TAG", sources.default_tag);
    return execute(command);
  }

 private:
  // `run -- CMD`, or `run CMD` where "--" may be a word of the program's own.
  std::vector<std::string> command_words() const {
    auto words = app_->remaining();
    if (!words.empty() && words.front().starts_with('-')) {
      throw CommandError(ExitCode::usage,
                         fmt::format("run: unknown option {} (see `lowtide run --help`)", words.front()));
    }
    if (!words.empty() && program_) words.emplace_back("--");
    if (program_) words.insert(words.end(), program_->begin(), program_->end());
    if (words.empty())
      throw CommandError(ExitCode::usage, "run: no program is given, as in `lowtide run -- python serve.py`");
    return words;
  }

  ConfigurationSources sources_in_force() const {
    auto sources = sources_from_environment();
    // The program may change its folder before it reads the file.
    if (file_) sources.file = whole_path(*file_);
    for (const auto& setting : settings_) {
      sources.settings += (sources.settings.empty() ? "" : ",") + checked_setting(setting);
    }
    if (tag_ && tag_->empty()) throw CommandError(ExitCode::usage, "--tag needs the name of a tag, not \"\"");
    if (tag_) sources.default_tag = *tag_;
    return sources;
  }

  static void refuse_unknown_action(const Configuration& configuration) {
    if (!configuration.default_tag || action_is_known(configuration, *configuration.default_tag)) return;
    const auto tag = configuration.default_tag->view();
    throw CommandError(ExitCode::usage, fmt::format("what a pause does with the tag \"{}\" is not known; say it: "
                                                    "--set tag.{}.pause=offload (or discard, or keep)",
                                                    tag, tag));
  }

  static ExitCode execute(std::vector<std::string> words) {
    std::vector<char*> arguments;
    arguments.reserve(words.size() + 1);
    for (auto& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    ::execvp(arguments[0], arguments.data());
    const int error = errno;
    constexpr int not_found = 127;
    constexpr int not_executable = 126;
    fmt::print(stderr, "lowtide: {}: {}\n", words[0], std::strerror(error));
    return static_cast<ExitCode>(error == ENOENT ? not_found : not_executable);
  }

  const CLI::App* app_ = nullptr;
  std::optional<std::string> tag_;
  std::optional<std::string> file_;
  std::vector<std::string> settings_;
  std::optional<std::vector<std::string>> program_;
};

}  // namespace

std::unique_ptr<Command> make_run() { return std::make_unique<Run>(); }

}  // namespace lowtide::tools

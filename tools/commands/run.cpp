// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "allocator/control/socket_directory.hpp"
#include "tools/command.hpp"
#include "tools/launch/launch_options.hpp"

namespace lowtide::tools {
namespace {

class Run final : public Command {
 public:
  void declare(CLI::App& app) override {
    launch_.declare(app);
    app.prefix_command();
    app_ = &app;
    app.footer(
        "CMD, the program and its arguments, stands after the options: lowtide run [OPTIONS] -- CMD...\n"
        "The program replaces this command: its exit code and signals are its own. 127: CMD is not found; 126: it\n"
        "cannot be executed.\n"
        "Without --tag what a scope (lowtide.h), a region of the Python package, a rule of the configuration, or the\n"
        "plug-in for vLLM or SGLang tags is managed, and nothing else. Start these engines without it.\n\n"
        "Examples:\n"
        "  lowtide run --tag weights -- python serve.py --port 8000\n"
        "  lowtide run --tag work --set tag.work.pause=offload -- ./train\n"
        "  lowtide run --config lowtide.toml -- torchrun --nproc-per-node 8 train.py\n\n" +
        exit_code_help());
  }

  void take_program(std::vector<std::string>&& words) override { program_ = std::move(words); }

  ExitCode run() override {
    const auto command = command_words();
    const auto sources = launch_.check();
    // A process that nobody can reach later would be a surprise after hours.
    if (const auto folder = make_socket_directory(); !folder) {
      throw CommandError(ExitCode::permission, folder.error().message());
    }
    for (const auto& variable : LaunchOptions::variables(sources))
      ::setenv(variable.name.c_str(), variable.value.c_str(), 1);
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
  LaunchOptions launch_;
  std::optional<std::vector<std::string>> program_;
};

}  // namespace

std::unique_ptr<Command> make_run() { return std::make_unique<Run>(); }

}  // namespace lowtide::tools

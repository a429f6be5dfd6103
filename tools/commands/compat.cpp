// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "tools/command.hpp"
#include "tools/compat/saver_files.hpp"
#include "tools/installation.hpp"

namespace lowtide::tools {
namespace {

void move_back(const SaverFile& file) {
  std::error_code error;
  std::filesystem::rename(file.put_aside(), file.path, error);
  if (!error) return;
  throw CommandError(ExitCode::failed, fmt::format("{} cannot be put back to {}: {}", file.put_aside().native(),
                                                   file.path.native(), error.message()));
}

class Compat final : public Command {
 public:
  void declare(CLI::App& app) override {
    app.add_option("ACTION", action_, "install or uninstall")
        ->required()
        ->check(CLI::IsMember({"install", "uninstall"}));
    app.add_option("--into,--from", folder_, "The site-packages folder that torch_memory_saver is installed in")
        ->type_name("DIR")
        ->required();
    app.footer(
        "install puts Lowtide's library in the place of torch_memory_saver's, whose Python then goes on unchanged; "
        "the\n"
        "originals stay beside it as *.original. uninstall puts them back. Files that are neither are not touched.\n"
        "Programs that run keep what they have opened. Programs that may be changed import\n"
        "lowtide.compat.torch_memory_saver instead, which raises on every error.\n\n"
        "Examples:\n"
        "  lowtide compat install --into \"$(python -c 'import sysconfig; print(sysconfig.get_path(\"platlib\"))')\"\n"
        "  lowtide compat uninstall --from /opt/venv/lib/python3.12/site-packages\n\n" +
        exit_code_help());
  }

  ExitCode run() override {
    const std::filesystem::path folder = folder_;
    const auto files = find_saver_files(folder);
    refuse_unknown(files, folder / state_library);
    return action_ == "install" ? install(files, folder) : uninstall(files, folder);
  }

 private:
  static void refuse_unknown(const std::vector<SaverFile>& files, const std::filesystem::path& state) {
    const auto refuse = [](const std::filesystem::path& path) {
      throw CommandError(
          ExitCode::refused,
          fmt::format("{} is neither torch_memory_saver's nor Lowtide's: nothing was changed", path.native()));
    };
    for (const auto& file : files) {
      if (file.kind == SaverFile::Kind::unknown) refuse(file.path);
      if (file.kind == SaverFile::Kind::original && std::filesystem::exists(file.put_aside())) refuse(file.put_aside());
    }
    if (std::filesystem::exists(state) && kind_of(state) != SaverFile::Kind::ours) refuse(state);
  }

  static ExitCode install(const std::vector<SaverFile>& files, const std::filesystem::path& folder) {
    if (files.empty()) {
      throw CommandError(
          ExitCode::not_found,
          fmt::format("no library of torch_memory_saver lies in {}: pip install torch_memory_saver first, "
                      "or name its site-packages",
                      folder.native()));
    }
    const std::filesystem::path preload = preload_library();
    copy_over(preload.parent_path() / state_library, folder / state_library);
    for (const auto& file : files) {
      if (file.kind == SaverFile::Kind::original) put_aside(file);
      try {
        copy_over(preload, file.path);
      } catch (const CommandError&) {
        if (file.kind == SaverFile::Kind::original) move_back(file);
        throw;
      }
      fmt::print("{}: Lowtide's, its original is kept as {}\n", file.path.native(),
                 file.put_aside().filename().native());
    }
    return ExitCode::ok;
  }

  static void put_aside(const SaverFile& file) {
    std::error_code error;
    std::filesystem::rename(file.path, file.put_aside(), error);
    if (error) {
      throw CommandError(ExitCode::failed,
                         fmt::format("{} cannot be put aside: {}", file.path.native(), error.message()));
    }
  }

  static ExitCode uninstall(const std::vector<SaverFile>& files, const std::filesystem::path& folder) {
    bool all_back = true;
    for (const auto& file : files) {
      if (file.kind != SaverFile::Kind::ours) continue;
      if (std::filesystem::exists(file.put_aside())) {
        move_back(file);
        fmt::print("{}: the original\n", file.path.native());
      } else {
        all_back = false;
        fmt::print(stderr, "lowtide: {} has no original beside it and stays: reinstall torch_memory_saver\n",
                   file.path.native());
      }
    }
    std::error_code ignored;
    if (all_back) std::filesystem::remove(folder / state_library, ignored);
    return all_back ? ExitCode::ok : ExitCode::failed;
  }

  std::string action_;
  std::string folder_;
};

}  // namespace

std::unique_ptr<Command> make_compat() { return std::make_unique<Compat>(); }

}  // namespace lowtide::tools

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
    const FolderLock lock(folder);
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
      if (std::filesystem::exists(file.put_aside()) && kind_of(file.put_aside()) == SaverFile::Kind::unknown)
        refuse(file.put_aside());
    }
    if (std::filesystem::exists(state) && kind_of(state) != SaverFile::Kind::ours) refuse(state);
  }

  static ExitCode install(const std::vector<SaverFile>& files, const std::filesystem::path& folder) {
    if (std::all_of(files.begin(), files.end(), [](const auto& f) { return f.kind == SaverFile::Kind::missing; })) {
      throw CommandError(
          ExitCode::not_found,
          fmt::format("no library of torch_memory_saver lies in {}: pip install torch_memory_saver first, "
                      "or name its site-packages",
                      folder.native()));
    }
    const std::filesystem::path preload = preload_library();
    copy_over(preload.parent_path() / state_library, folder / state_library);
    for (const auto& file : files) {
      // A copy, so that there is a library at every moment. One of an earlier torch_memory_saver is of no use any more.
      if (file.kind == SaverFile::Kind::original) copy_over(file.path, file.put_aside());
      copy_over(preload, file.path);
      fmt::print("{}: Lowtide's, its original is kept as {}\n", file.path.native(),
                 file.put_aside().filename().native());
    }
    return ExitCode::ok;
  }

  static ExitCode uninstall(const std::vector<SaverFile>& files, const std::filesystem::path& folder) {
    bool all_back = true;
    for (const auto& file : files) {
      const bool has_original =
          std::filesystem::exists(file.put_aside()) && kind_of(file.put_aside()) == SaverFile::Kind::original;
      if (file.kind == SaverFile::Kind::original) {
        // Installed by pip over ours, or an installation that was broken off: this one is in its place already.
        std::error_code ignored;
        if (has_original) std::filesystem::remove(file.put_aside(), ignored);
      } else if (has_original) {
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

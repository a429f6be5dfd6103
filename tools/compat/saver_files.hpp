// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <vector>

namespace lowtide::tools {

/// A library under one of the file names that torch_memory_saver's Python opens.
struct SaverFile {
  enum class Kind { original, ours, unknown };
  std::filesystem::path path;
  Kind kind;
  /// Where its original is put, under a name that the Python does not look for.
  std::filesystem::path put_aside() const { return path.native() + ".original"; }
};

/// Those of a site-packages folder, by name. Throws CommandError if it cannot be read.
std::vector<SaverFile> find_saver_files(const std::filesystem::path& folder);

/// What a file is, by what it holds.
SaverFile::Kind kind_of(const std::filesystem::path& file);

/// A real copy of `from` in the place of `to`: whole at every moment, also for who opens it meanwhile. Throws
/// CommandError, and `to` is as before.
void copy_over(const std::filesystem::path& from, const std::filesystem::path& to);

}  // namespace lowtide::tools

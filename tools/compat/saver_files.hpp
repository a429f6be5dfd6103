// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <vector>

#include "allocator/base/unique_fd.hpp"

namespace lowtide::tools {

/// A library under one of the file names that torch_memory_saver's Python opens.
struct SaverFile {
  enum class Kind { original, ours, unknown, missing };
  std::filesystem::path path;
  Kind kind;  ///< `missing`: only what was put aside is there
  /// Where its original is put, under a name that the Python does not look for.
  std::filesystem::path put_aside() const { return path.native() + ".original"; }
};

/// While it lives no other `lowtide compat` changes the folder: each would take the other's library for the original.
/// Where the file system has no locks it goes without.
class FolderLock {
 public:
  explicit FolderLock(const std::filesystem::path& folder);

 private:
  UniqueFd folder_;
};

/// Those of a site-packages folder, by name. Throws CommandError if it cannot be read.
std::vector<SaverFile> find_saver_files(const std::filesystem::path& folder);

/// What a file is, by what it holds.
SaverFile::Kind kind_of(const std::filesystem::path& file);

/// A real copy of `from` in the place of `to`: whole at every moment, also for who opens it meanwhile. Throws
/// CommandError, and `to` is as before.
void copy_over(const std::filesystem::path& from, const std::filesystem::path& to);

}  // namespace lowtide::tools

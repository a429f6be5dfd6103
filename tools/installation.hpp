// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace lowtide::tools {

/// What liblowtide_preload.so loads from its own folder.
inline constexpr const char* state_library = "liblowtide.so";

/// The path of the running command, links followed.
std::filesystem::path own_path();

/// A file that is installed with this command: ../lib/lowtide, ../lib or the folder of the command itself, in this
/// order; the first that exists.
std::optional<std::filesystem::path> find_installed(const std::string& name);

/// liblowtide_preload.so, in a form that LD_PRELOAD can say. Throws CommandError if it is missing, or lies where
/// LD_PRELOAD cannot name it (a space or a colon separates its entries).
std::string preload_library();

/// The entries of an LD_PRELOAD that are not Lowtide's.
std::string preloads_of_others(std::string_view ld_preload);

/// `ld_preload` with `library` at its end, unless Lowtide's is in there already.
std::string with_preload(std::string_view ld_preload, const std::string& library);

}  // namespace lowtide::tools

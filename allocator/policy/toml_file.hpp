// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>

#include "allocator/base/result.hpp"
#include "allocator/policy/configuration.hpp"

namespace lowtide {

/// Sets what the TOML file at `path` says. The first thing that is wrong, in the file's order, is a Code::config with
/// file and line; `configuration` may then be half changed.
Status apply_file(Configuration& configuration, const std::string& path);

/// In which line each key of the file stands, those of its lists left out.
Result<std::map<std::string, unsigned>> key_lines(const std::string& path);

}  // namespace lowtide

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "allocator/policy/match.hpp"

namespace lowtide {

/// Whether a folder is a Python package: it has an `__init__.py`.
using IsPackage = std::function<bool(const std::string& folder)>;

/// The dotted module that Python knows the file by: what follows the last site-packages or dist-packages of its path,
/// else the packages around it.
std::string module_of(std::string_view path, const IsPackage& is_package);

/// The frames in what CPython's own dump of a thread says, line by line: `  File "PATH", line N in FUNCTION`. Other
/// lines, and one that is cut off, are passed over.
std::vector<PythonFrame> frames_in(std::string_view traceback, const IsPackage& is_package);

}  // namespace lowtide

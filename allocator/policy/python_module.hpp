// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace lowtide {

/// The dotted module that Python knows the file `path` by: what follows the last site-packages or dist-packages, else
/// the packages around it, which are the folders that `is_package` answers true for.
std::string module_of(std::string_view path, bool (*is_package)(const std::string& folder));

}  // namespace lowtide

// SPDX-License-Identifier: Apache-2.0
#include "allocator/policy/python_module.hpp"

#include <algorithm>

namespace lowtide {
namespace {

/// Takes the last part off `folder` and puts it before `module`.
void take_last_part(std::string_view& folder, std::string& module) {
  const auto slash = folder.rfind('/');
  const auto part = slash == std::string_view::npos ? folder : folder.substr(slash + 1);
  module.insert(0, module.empty() ? std::string(part) : std::string(part) + '.');
  folder = slash == std::string_view::npos ? std::string_view() : folder.substr(0, slash);
}

/// A package's `__init__` stands for the package.
bool is_init(std::string_view part) { return part == "__init__"; }

std::string module_below(std::string_view path) {
  std::string module(path);
  std::replace(module.begin(), module.end(), '/', '.');
  const auto dot = module.rfind('.');
  if (dot != std::string::npos && is_init(std::string_view(module).substr(dot + 1))) module.resize(dot);
  return module;
}

}  // namespace

std::string module_of(std::string_view path, bool (*is_package)(const std::string& folder)) {
  constexpr std::string_view frozen = "<frozen ";
  if (path.starts_with(frozen) && path.ends_with('>')) {
    return std::string(path.substr(frozen.size(), path.size() - frozen.size() - 1));
  }
  if (!path.ends_with(".py")) return std::string(path);
  path.remove_suffix(3);
  for (const std::string_view root : {"/site-packages/", "/dist-packages/"}) {
    if (const auto at = path.rfind(root); at != std::string_view::npos)
      return module_below(path.substr(at + root.size()));
  }
  std::string module;
  take_last_part(path, module);
  if (is_init(module)) {
    module.clear();
    take_last_part(path, module);
  }
  while (!path.empty() && is_package(std::string(path))) take_last_part(path, module);
  return module;
}

}  // namespace lowtide

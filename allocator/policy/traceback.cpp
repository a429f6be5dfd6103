// SPDX-License-Identifier: Apache-2.0
#include "allocator/policy/traceback.hpp"

#include <algorithm>
#include <array>
#include <optional>

namespace lowtide {
namespace {

constexpr std::string_view before_path = "  File \"";
constexpr std::string_view behind_path = "\", line ";
constexpr std::string_view before_function = " in ";

/// `folder` without its last part, which goes before `module`.
void take_last_part(std::string_view& folder, std::string& module) {
  const auto slash = folder.rfind('/');
  const auto part = slash == std::string_view::npos ? folder : folder.substr(slash + 1);
  module.insert(0, module.empty() ? std::string(part) : std::string(part) + '.');
  folder = slash == std::string_view::npos ? std::string_view() : folder.substr(0, slash);
}

std::optional<PythonFrame> frame_in(std::string_view line) {
  if (!line.starts_with(before_path)) return std::nullopt;
  line.remove_prefix(before_path.size());
  const auto end = line.rfind(behind_path);  // a path may hold anything
  if (end == std::string_view::npos) return std::nullopt;
  const auto rest = line.substr(end + behind_path.size());
  const auto in = rest.find(before_function);
  if (in == std::string_view::npos) return std::nullopt;
  return PythonFrame{{}, std::string(line.substr(0, end)), std::string(rest.substr(in + before_function.size()))};
}

}  // namespace

std::string module_of(std::string_view path, const IsPackage& is_package) {
  constexpr std::string_view frozen = "<frozen ";
  if (path.starts_with(frozen) && path.ends_with('>')) {
    return std::string(path.substr(frozen.size(), path.size() - frozen.size() - 1));
  }
  if (!path.ends_with(".py")) return std::string(path);
  path.remove_suffix(3);
  for (const std::string_view root : {"/site-packages/", "/dist-packages/"}) {
    const auto at = path.rfind(root);
    if (at == std::string_view::npos) continue;
    std::string module(path.substr(at + root.size()));
    std::replace(module.begin(), module.end(), '/', '.');
    if (module.ends_with(".__init__")) module.resize(module.size() - std::string_view(".__init__").size());
    return module;
  }
  std::string module;
  take_last_part(path, module);
  if (module == "__init__") {  // it stands for its folder
    module.clear();
    take_last_part(path, module);
  }
  while (!path.empty() && is_package(std::string(path))) take_last_part(path, module);
  return module;
}

std::vector<PythonFrame> frames_in(std::string_view traceback, const IsPackage& is_package) {
  std::vector<PythonFrame> frames;
  for (auto end = traceback.find('\n'); end != std::string_view::npos; end = traceback.find('\n')) {
    auto frame = frame_in(traceback.substr(0, end));
    traceback.remove_prefix(end + 1);
    if (!frame) continue;
    const bool same_file = !frames.empty() && frames.back().path == frame->path;
    frame->module = same_file ? frames.back().module : module_of(frame->path, is_package);
    frames.push_back(std::move(*frame));
  }
  return frames;
}

}  // namespace lowtide

// SPDX-License-Identifier: Apache-2.0
#include "tools/launch/containers.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <vector>

#include "tools/exit_codes.hpp"
#include "tools/installation.hpp"
#include "tools/launch/formats.hpp"

namespace lowtide::tools {
namespace {

namespace fs = std::filesystem;

constexpr const char* place = "/opt/lowtide";
constexpr const char* configuration_name = "lowtide.toml";

/// A file of this machine, and where the container sees it.
struct Mount {
  std::string name;  ///< of the pod's volume
  std::string source;
  std::string target;
};

struct Contents {
  std::vector<Mount> files;            ///< of the installation
  std::optional<Mount> configuration;  ///< the user's, if there is one
  Variables variables;                 ///< with the container's paths
};

Contents contents_of(const Variables& variables) {
  const fs::path preload = preload_library();
  const auto state = preload.parent_path() / state_library;
  if (!fs::exists(state)) {
    throw CommandError(ExitCode::failed, fmt::format("{} is not installed: install Lowtide whole", state.native()));
  }
  const auto preload_target = fmt::format("{}/lib/{}", place, preload.filename().native());
  Contents contents;
  contents.files = {{"lowtide-command", own_path().native(), fmt::format("{}/bin/lowtide", place)},
                    {"lowtide-preload", preload.native(), preload_target},
                    {"lowtide-state", state.native(), fmt::format("{}/lib/{}", place, state_library)}};
  for (auto variable : variables) {
    if (variable.name == "LD_PRELOAD") {
      variable.value = with_preload(preloads_of_others(variable.value), preload_target);
    } else if (variable.name == "LOWTIDE_CONFIG") {
      contents.configuration = {"lowtide-config", fs::absolute(variable.value).native(),
                                fmt::format("{}/{}", place, configuration_name)};
      variable.value = contents.configuration->target;
    }
    contents.variables.push_back(std::move(variable));
  }
  return contents;
}

std::string docker_mount(const Mount& mount) {
  if (mount.source.find(':') != std::string::npos) {
    throw CommandError(ExitCode::usage,
                       fmt::format("docker run -v cannot name {}: its path has a colon", mount.source));
  }
  return " -v " + shell_word(fmt::format("{}:{}:ro", mount.source, mount.target));
}

// Kubernetes replaces $(NAME) in a value, and "$$" by "$".
std::string pod_value(const std::string& value) {
  std::string escaped;
  for (const char c : value) escaped += c == '$' ? std::string("$$") : std::string(1, c);
  return json_string(escaped);
}

std::string pod_container(const Contents& contents) {
  std::string text = "      env:\n";
  for (const auto& variable : contents.variables) {
    text += fmt::format("        - name: {}\n          value: {}\n", variable.name, pod_value(variable.value));
  }
  text += "      volumeMounts:\n";
  const auto add = [&text](const std::string& name, const std::string& target, const std::string& more) {
    text += fmt::format("        - name: {}\n          mountPath: {}\n{}", name, target, more);
  };
  for (const auto& file : contents.files) add(file.name, file.target, "          readOnly: true\n");
  if (contents.configuration) {
    add(contents.configuration->name, contents.configuration->target,
        fmt::format("          subPath: {}\n          readOnly: true\n", configuration_name));
  }
  add("shm", "/dev/shm", "");
  return text;
}

std::string pod_volumes(const Contents& contents) {
  std::string text = "  volumes:\n";
  for (const auto& file : contents.files) {
    text += fmt::format("    - name: {}\n      hostPath:\n        path: {}\n        type: File\n", file.name,
                        json_string(file.source));
  }
  if (contents.configuration) {
    text += fmt::format(
        "    # kubectl create configmap {0} --from-file={1}=FILE\n    - name: {0}\n      configMap:\n        name: "
        "{0}\n",
        contents.configuration->name, configuration_name);
  }
  return text + "    - name: shm\n      emptyDir:\n        medium: Memory\n        sizeLimit: 1Gi\n";
}

}  // namespace

std::string as_docker_options(const Variables& variables) {
  const auto contents = contents_of(variables);
  std::string text = "--shm-size=1g --ulimit memlock=-1";
  for (const auto& file : contents.files) text += docker_mount(file);
  if (contents.configuration) text += docker_mount(*contents.configuration);
  for (const auto& variable : contents.variables) {
    text += " -e " + shell_word(fmt::format("{}={}", variable.name, variable.value));
  }
  return text + "\n";
}

std::string as_pod(const Variables& variables) {
  const auto contents = contents_of(variables);
  return "# Parts of a pod's spec: \"main\" is the container whose program uses the GPU. Its resources.limits.memory, "
         "if\n"
         "# it has one, must hold the program's own memory, what lies in /dev/shm, and the bytes of all offloaded tags "
         "that\n"
         "# are parked at the same time: a pause that does not fit is refused. The nodes have Lowtide at these paths.\n"
         "spec:\n  containers:\n    - name: main\n" +
         pod_container(contents) + pod_volumes(contents);
}

}  // namespace lowtide::tools

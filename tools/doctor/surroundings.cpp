// SPDX-License-Identifier: Apache-2.0
#include "tools/doctor/surroundings.hpp"

#include <fmt/format.h>
#include <strings.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "allocator/base/env.hpp"
#include "allocator/control/socket_directory.hpp"
#include "allocator/policy/configuration.hpp"
#include "tools/exit_codes.hpp"
#include "tools/installation.hpp"
#include "tools/view/terminal.hpp"

namespace lowtide::tools {
namespace {

constexpr std::size_t most_of_a_value = 100;

constexpr std::array<std::string_view, 12> known_variables{
    "LOWTIDE_CONFIG",      "LOWTIDE_CONF",    "LOWTIDE_DEFAULT_TAG", "LOWTIDE_LOG",
    "LOWTIDE_RUNTIME_DIR", "LOWTIDE_DISABLE", "LOWTIDE_REQUIRE",     "LOWTIDE_ROLE",
    "LOWTIDE_BACKEND",     "LOWTIDE_TRACE",   "LOWTIDE_METRICS",     "LOWTIDE_FOLLOW_EXEC"};

bool is_known(std::string_view name) {
  return name.starts_with("LOWTIDE_SIM_") ||
         std::find(known_variables.begin(), known_variables.end(), name) != known_variables.end();
}

Finding examine_memlock() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) != 0) return {Level::note, "memlock", "RLIMIT_MEMLOCK cannot be read", ""};
  if (limit.rlim_cur == RLIM_INFINITY) return {Level::ok, "memlock", "locked memory is not limited", ""};
  // NVIDIA's driver does not charge registered memory to it; RDMA libraries do.
  return {Level::note, "memlock",
          fmt::format("locked memory is limited to {} (ulimit -l)", to_text(Bytes{limit.rlim_cur})),
          "CUDA backups do not count against it; RDMA registrations do: raise it with `ulimit -l unlimited`"};
}

Finding examine_room(const HostLimits& limits, std::optional<Bytes> device_memory) {
  const auto room = limits.room();
  if (!room) return {Level::note, "host memory", "the free host memory cannot be read", ""};
  if (!device_memory)
    return {Level::note, "host memory", fmt::format("{} can be used for backups", to_text(*room)), ""};
  const auto text =
      fmt::format("{} can be used for backups of up to {} of device memory", to_text(*room), to_text(*device_memory));
  if (*room >= *device_memory) return {Level::ok, "host memory", text, ""};
  return {Level::warning, "host memory", text, "a pause of more than that fails; let large tags be discarded instead"};
}

void examine_preloads(Findings& findings) {
  const auto others = preloads_of_others(env("LD_PRELOAD").value_or(""));
  if (others.empty()) return;
  findings.push_back({Level::note, "LD_PRELOAD", "others are preloaded: " + printable(others, most_of_a_value),
                      "`lowtide run` keeps them, before its own library"});
}

bool has_expandable_segments(std::string_view value) {
  std::string text(value);
  std::erase_if(text, [](char c) { return c == ' '; });
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text.find("expandable_segments:true") != std::string::npos;
}

void examine_pytorch(Findings& findings) {
  for (const char* name : {"PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF"}) {
    const auto value = env(name);
    if (!value || !has_expandable_segments(*value)) continue;
    findings.push_back({Level::warning, "expandable_segments",
                        fmt::format("{} turns expandable_segments on: PyTorch then maps its memory itself", name),
                        "turn it off, or PyTorch's memory is seen but not paused"});
  }
}

void examine_nccl(Findings& findings) {
  const auto graph = env("NCCL_GRAPH_REGISTER");
  if (!graph) {
    findings.push_back({Level::note, "NCCL_GRAPH_REGISTER",
                        "NCCL_GRAPH_REGISTER is not set: NCCL may register captured buffers",
                        "set NCCL_GRAPH_REGISTER=0 if CUDA graphs with collectives on paused memory are replayed"});
  } else if (*graph != "0") {
    findings.push_back({Level::warning, "NCCL_GRAPH_REGISTER",
                        fmt::format("NCCL_GRAPH_REGISTER={}: NCCL keeps the physical pages of captured buffers",
                                    printable(*graph, most_of_a_value)),
                        "set NCCL_GRAPH_REGISTER=0, or a replay after a resume can hang"});
  } else {
    findings.push_back({Level::ok, "NCCL_GRAPH_REGISTER", "NCCL_GRAPH_REGISTER=0", ""});
  }
  if (const auto cumem = env("NCCL_CUMEM_ENABLE"); cumem && *cumem != "0") {
    findings.push_back(
        {Level::note, "NCCL_CUMEM_ENABLE",
         fmt::format("NCCL_CUMEM_ENABLE={}: NCCL maps its own buffers", printable(*cumem, most_of_a_value)),
         "they stay on the device during a pause"});
  }
}

void examine_own_variables(Findings& findings) {
  constexpr std::string_view prefix = "LOWTIDE_";
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    if (!text.starts_with(prefix)) continue;
    const auto name = text.substr(0, text.find('='));
    Finding finding{Level::note, std::string(name), printable(text, most_of_a_value), ""};
    if (!is_known(name)) {
      finding.level = Level::warning;
      finding.advice = "no such variable is known; see docs/configuration.md";
    }
    findings.push_back(std::move(finding));
  }
  if (env_flag("LOWTIDE_DISABLE")) {
    findings.push_back({Level::warning, "LOWTIDE_DISABLE", "LOWTIDE_DISABLE switches Lowtide off", "unset it"});
  }
}

void examine_configuration(Findings& findings) {
  const auto configuration = load_configuration(sources_from_environment());
  if (!configuration) {
    findings.push_back({Level::error, "configuration", configuration.error().message(), "see docs/configuration.md"});
    return;
  }
  const auto& tag = configuration->default_tag;
  if (tag && !action_is_known(*configuration, *tag)) {
    findings.push_back({Level::error, "configuration",
                        fmt::format("what a pause does with the default tag \"{}\" is not known", tag->view()),
                        fmt::format("set tag.{}.pause", tag->view())});
    return;
  }
  findings.push_back({Level::ok, "configuration", "the configuration in force can be read", ""});
}

}  // namespace

Findings examine_host_memory(const HostLimits& limits, std::optional<Bytes> device_memory) {
  Findings findings{examine_room(limits, device_memory)};
  if (limits.available) {
    findings.push_back(
        {Level::note, "MemAvailable", fmt::format("the host has {} available", to_text(*limits.available)), ""});
  }
  for (const auto& cgroup : limits.cgroups) {
    const bool small = device_memory && cgroup.room() < *device_memory;
    findings.push_back(
        {small ? Level::warning : Level::note, "cgroup",
         fmt::format("{}: {}, of which {} are used", cgroup.file, to_text(cgroup.limit), to_text(cgroup.used)),
         small ? "raise it, or a pause that needs more is refused" : ""});
  }
  findings.push_back(examine_memlock());
  return findings;
}

Findings examine_environment() {
  Findings findings;
  examine_preloads(findings);
  examine_pytorch(findings);
  examine_nccl(findings);
  examine_own_variables(findings);
  examine_configuration(findings);
  return findings;
}

Findings examine_installation() {
  Findings findings;
  try {
    findings.push_back({Level::ok, "library", preload_library(), ""});
  } catch (const CommandError& error) {
    findings.push_back({Level::error, "library", error.what(), "install Lowtide whole"});
  }
  for (const auto& folder : socket_directories()) {
    const auto there = check_directory(folder, Owner::anybody_for_root);
    if (!there) {
      findings.push_back(
          {Level::error, "runtime folder", there.error().message(), "processes cannot be reached through it"});
    } else if (*there) {
      findings.push_back({Level::ok, "runtime folder", folder, ""});
    }
  }
  return findings;
}

}  // namespace lowtide::tools

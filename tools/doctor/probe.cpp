// SPDX-License-Identifier: Apache-2.0
#include "tools/doctor/probe.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <nlohmann/json.hpp>

#include "allocator/base/unique_fd.hpp"
#include "tools/installation.hpp"
#include "tools/view/counted.hpp"

namespace lowtide::tools {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr std::chrono::seconds longest_probe{30};

ProbeOutcome only(Finding finding) { return {{std::move(finding)}, std::nullopt}; }

// All that comes until the end; nothing if that takes too long.
std::optional<std::string> read_all(int pipe, std::chrono::seconds longest) {
  const auto deadline = steady_clock::now() + longest;
  std::string text;
  char chunk[4096];
  for (;;) {
    const auto left = std::chrono::duration_cast<milliseconds>(deadline - steady_clock::now()).count();
    pollfd ready{pipe, POLLIN, 0};
    if (left <= 0 || ::poll(&ready, 1, static_cast<int>(left)) == 0) return std::nullopt;
    const auto n = ::read(pipe, chunk, sizeof chunk);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return text;
    text.append(chunk, static_cast<std::size_t>(n));
  }
}

pid_t spawn(const std::string& path, const std::string& argument, int output) {
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
  char* const option = argument.empty() ? nullptr : const_cast<char*>(argument.c_str());
  char* arguments[] = {const_cast<char*>(path.c_str()), option, nullptr};
  pid_t child = 0;
  const int error = ::posix_spawn(&child, path.c_str(), &actions, nullptr, arguments, environ);
  ::posix_spawn_file_actions_destroy(&actions);
  return error == 0 ? child : -1;
}

std::string ending_text(int status) {
  if (WIFSIGNALED(status))
    return fmt::format("was killed by signal {} ({})", WTERMSIG(status), ::strsignal(WTERMSIG(status)));
  return fmt::format("ended with code {}", WEXITSTATUS(status));
}

Finding finding_of(const json& device) {
  const auto backend = device.at("backend").get<std::string>();
  const auto reason = device.at("reason").get<std::string>();
  if (backend == "none") {
    return {Level::error, "device", fmt::format("device {} cannot be used: {}", device.at("device").get<int>(), reason),
            "its memory is left alone, and nothing of it can be paused"};
  }
  const Bytes granularity{device.at("granularity").get<std::uint64_t>()};
  Finding finding{Level::ok, "device", "", ""};
  finding.text = fmt::format("device {} {}: backend {} ({}), granularity {}, {} of {} free",
                             device.at("device").get<int>(), device.at("name").get<std::string>(), backend, reason,
                             to_text(granularity), to_text(Bytes{device.at("free").get<std::uint64_t>()}),
                             to_text(Bytes{device.at("total").get<std::uint64_t>()}));
  if (backend == "off") {
    finding.level = Level::error;
    finding.advice = "nothing can be paused on this device";
  } else if (backend == "recreate") {
    finding.level = Level::note;
    finding.advice = "a resume may answer MOVED: see docs/backends.md";
  }
  return finding;
}

ProbeOutcome interpret(const json& answer) {
  if (answer.contains("error")) {
    return only({Level::error, "driver", "no GPU can be used: " + answer.at("error").get<std::string>(),
                 "install the GPU's driver, or give this container access to the GPU"});
  }
  ProbeOutcome outcome;
  const auto& devices = answer.at("devices");
  // The simulated driver has no version, and a container may not show the real one's.
  const auto& version = answer.at("driver");
  outcome.findings.push_back(
      {devices.empty() ? Level::error : Level::ok, "driver",
       fmt::format("driver {}, {}", version.is_null() ? "without a version" : version.get<std::string>(),
                   counted(devices.size(), "device")),
       devices.empty() ? "check CUDA_VISIBLE_DEVICES" : ""});
  if (answer.value("simulated", false)) {
    outcome.findings.push_back({Level::note, "simulated", "the driver is the simulated one: no GPU is involved", ""});
  }
  Bytes total;
  for (const auto& device : devices) {
    outcome.findings.push_back(finding_of(device));
    total += Bytes{device.value("total", std::uint64_t{0})};
  }
  if (total.value > 0) outcome.device_memory = total;
  return outcome;
}

}  // namespace

ProbeOutcome interpret_probe(const std::string& line) {
  try {
    return interpret(json::parse(line));
  } catch (const json::exception& error) {
    return only({Level::error, "driver", fmt::format("lowtide-probe printed what cannot be read: {}", error.what()),
                 "install matching versions of lowtide and lowtide-probe"});
  }
}

tl::expected<std::string, Finding> ask_probe(const std::string& argument, std::chrono::seconds longest) {
  const auto failed = [](std::string text, std::string advice) {
    return tl::make_unexpected(Finding{Level::error, "driver", std::move(text), std::move(advice)});
  };
  const auto path = find_installed("lowtide-probe");
  if (!path)
    return failed("the driver was not asked: lowtide-probe is not installed with this command",
                  "install Lowtide whole");
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return failed("the driver was not asked: no pipe", "");
  const UniqueFd reading(ends[0]);
  UniqueFd writing(ends[1]);
  const auto child = spawn(path->native(), argument, writing.get());
  writing.reset();
  if (child < 0) return failed(path->native() + " cannot be started", "install Lowtide whole");
  const auto text = read_all(reading.get(), longest);
  if (!text) ::kill(child, SIGKILL);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (!text) {
    return failed(fmt::format("the driver did not answer within {} s", longest.count()),
                  "look at dmesg; the GPU may need a reset");
  }
  if (text->empty()) return failed("lowtide-probe " + ending_text(status), "look at dmesg");
  return *text;
}

ProbeOutcome probe_devices() {
  const auto line = ask_probe("", longest_probe);
  return line ? interpret_probe(*line) : only(line.error());
}

}  // namespace lowtide::tools

// SPDX-License-Identifier: Apache-2.0
#include "tools/doctor/selftest.hpp"

#include <fmt/format.h>

#include "tools/doctor/probe.hpp"
#include "tools/exit_codes.hpp"

namespace lowtide::tools {
namespace {

using nlohmann::json;

/// Of all devices: each makes some hundred calls and copies a few GiB.
constexpr std::chrono::seconds longest_selftest{600};

std::string string_at(const json& object, const char* name) { return object.at(name).get<std::string>(); }
double number_at(const json& object, const char* name) { return object.at(name).get<double>(); }
Bytes bytes_at(const json& object, const char* name) { return {object.at(name).get<std::uint64_t>()}; }

std::string text_of_trial(const json& trial) {
  const auto why = string_at(trial, "why");
  const auto& came_back = trial.at("address_came_back");
  return fmt::format(
      "    trial: {}{} ({}, {} attempts, {:.1f} ms), address {}, {} descriptors per handle, {} left open\n",
      string_at(trial, "verdict"), why.empty() ? "" : ": " + why, to_text(bytes_at(trial, "size")),
      trial.at("attempts").get<int>(), number_at(trial, "seconds") * 1e3,
      came_back.is_null()     ? "not asked for"
      : came_back.get<bool>() ? "came back"
                              : "did not come back",
      trial.at("descriptors_per_handle").get<int>(), trial.at("descriptors_left").get<int>());
}

std::string text_of_measures(const json& measures) {
  if (const auto error = string_at(measures, "error"); !error.empty())
    return fmt::format("    a cycle cannot be played: {}\n", error);
  const auto size = bytes_at(measures, "cycle");
  auto text = fmt::format("    largest handle {}; ", to_text(bytes_at(measures, "largest_handle")));
  if (size.value == 0) return text + "no room for a cycle\n";
  const auto speed = [&](const char* name) {
    const double seconds = number_at(measures, name);
    return seconds > 0 ? static_cast<double>(size.value) / seconds / static_cast<double>((1_GiB).value) : 0;
  };
  text += fmt::format("a cycle of {}: out {:.1f} GiB/s, given back in {:.2f} ms, ", to_text(size), speed("copy_out"),
                      number_at(measures, "give") * 1e3);
  if (measures.at("moved").get<bool>()) return text + "the address was not had back\n";
  return text + fmt::format("got in {:.2f} ms, in {:.1f} GiB/s\n", number_at(measures, "get") * 1e3, speed("copy_in"));
}

struct Checked {
  std::string text;
  bool ok = true;
};

Checked checked(const json& checks) {
  Checked result;
  std::size_t good = 0;
  for (const auto& check : checks) {
    const bool ok = check.at("ok").get<bool>();
    good += ok ? 1 : 0;
    if (!ok) result.text += fmt::format("    FAILED {}: {}\n", string_at(check, "name"), string_at(check, "error"));
  }
  result.ok = good == checks.size();
  result.text = fmt::format("    {} of {} checks passed\n", good, checks.size()) + result.text;
  return result;
}

/// One way to serve a device.
Checked text_of_candidate(const json& candidate) {
  Checked result;
  result.text = fmt::format("  {}: {}\n", string_at(candidate, "backend"), string_at(candidate, "offer"));
  if (const auto error = string_at(candidate, "error"); !error.empty()) {
    result.text += fmt::format("    cannot be made: {}\n", error);
    return result;
  }
  const auto trial = candidate.find("trial");
  if (trial != candidate.end()) result.text += text_of_trial(*trial);
  if (const auto checks = candidate.find("checks"); checks != candidate.end()) {
    const auto part = checked(*checks);
    result.text += part.text;
    // What the trial rejects is not used, whatever it does.
    result.ok = part.ok || (trial != candidate.end() && string_at(*trial, "verdict") != "works");
  }
  if (const auto measures = candidate.find("measures"); measures != candidate.end())
    result.text += text_of_measures(*measures);
  return result;
}

Selftest interpret(const json& report) {
  if (report.contains("error"))
    throw CommandError(ExitCode::failed, "no GPU can be used: " + string_at(report, "error"));
  Selftest selftest{report, !report.at("devices").empty(), {}};
  const auto& driver = report.at("driver");
  const bool is_cuda = report.contains("cuda");
  selftest.text = fmt::format("lowtide {}, driver {}, {} {}, {}, {}{}\n", string_at(report, "lowtide"),
                              driver.is_null() ? "without a version" : driver.get<std::string>(),
                              is_cuda ? "CUDA" : "HIP", string_at(report, is_cuda ? "cuda" : "hip"),
                              string_at(report, "library"), string_at(report, "system"),
                              report.at("simulated").get<bool>() ? ", simulated: no GPU is involved" : "");
  for (const auto& device : report.at("devices")) {
    const auto backend = string_at(device, "backend");
    selftest.ok &= backend != "none";
    selftest.text += fmt::format("device {} {}: {} ({})\n", device.at("device").get<int>(), device.value("name", ""),
                                 backend, string_at(device, "reason"));
    for (const auto& candidate : device.value("candidates", json::array())) {
      const auto part = text_of_candidate(candidate);
      selftest.ok &= part.ok;
      selftest.text += part.text;
    }
  }
  return selftest;
}

}  // namespace

Selftest interpret_selftest(const std::string& line) {
  try {
    return interpret(json::parse(line));
  } catch (const json::exception& error) {
    throw CommandError(ExitCode::failed, fmt::format("lowtide-probe printed what cannot be read: {}", error.what()));
  }
}

Selftest run_selftest() {
  const auto line = ask_probe("--selftest", longest_selftest);
  if (!line) throw CommandError(ExitCode::failed, line.error().text);
  return interpret_selftest(*line);
}

}  // namespace lowtide::tools

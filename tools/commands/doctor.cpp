// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tools/command.hpp"
#include "tools/doctor/probe.hpp"
#include "tools/doctor/selftest.hpp"
#include "tools/doctor/surroundings.hpp"
#include "tools/view/terminal.hpp"

namespace lowtide::tools {
namespace {

Colour colour_of(Level level) {
  switch (level) {
    case Level::ok: return Colour::green;
    case Level::note: return Colour::faint;
    case Level::warning: return Colour::yellow;
    case Level::error: return Colour::red;
  }
  return Colour::plain;
}

std::string text_of(const Findings& findings) {
  std::string text;
  for (const auto& finding : findings) {
    const auto level = fmt::format("{:<7}", to_text(finding.level));
    text += fmt::format("{}  {}\n", coloured(level, colour_of(finding.level)), finding.text);
    if (!finding.advice.empty()) text += fmt::format("         -> {}\n", finding.advice);
  }
  return text;
}

std::string json_of(const Findings& findings, bool healthy) {
  auto list = nlohmann::json::array();
  for (const auto& finding : findings) {
    list.push_back({{"level", to_text(finding.level)},
                    {"subject", finding.subject},
                    {"text", finding.text},
                    {"advice", finding.advice}});
  }
  const nlohmann::json object{{"ok", healthy}, {"findings", list}};
  return object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + '\n';
}

class Doctor final : public Command {
 public:
  void declare(CLI::App& app) override {
    app.add_flag("--selftest", selftest_,
                 "Try every device with every backend, and report what each can do and how fast");
    app.add_flag("--json", json_, "The findings, or the report, as JSON on stdout");
    app.footer(
        "Changes nothing. Exits with 1 if a finding is an error.\n\n"
        "--selftest needs some free memory on each device, up to half of it for a moment, and takes a few seconds. It "
        "is\n"
        "for devices that Lowtide was never run on: its report is what to send to the project. Exits with 1 if a "
        "device\n"
        "has no backend, or one that works breaks a promise.\n\n"
        "Examples:\n"
        "  lowtide doctor\n"
        "  lowtide doctor --selftest\n"
        "  lowtide doctor --selftest --json > lowtide-selftest.json\n"
        "  lowtide doctor --json | jq '.findings[] | select(.level != \"ok\")'\n\n" +
        exit_code_help());
  }

  ExitCode run() override { return selftest_ ? test() : examine(); }

  bool json() const override { return json_; }

 private:
  ExitCode test() const {
    const auto selftest = run_selftest();
    const nlohmann::json object{{"ok", selftest.ok}, {"report", selftest.report}};
    fmt::print("{}",
               json_ ? object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + '\n' : selftest.text);
    return selftest.ok ? ExitCode::ok : ExitCode::failed;
  }

  ExitCode examine() const {
    auto probe = probe_devices();
    Findings findings = std::move(probe.findings);
    for (const auto& more : {examine_host_memory(read_host_limits(""), probe.device_memory), examine_environment(),
                             examine_installation()}) {
      findings.insert(findings.end(), more.begin(), more.end());
    }
    const bool healthy = std::none_of(findings.begin(), findings.end(),
                                      [](const Finding& finding) { return finding.level == Level::error; });
    fmt::print("{}", json_ ? json_of(findings, healthy) : text_of(findings));
    return healthy ? ExitCode::ok : ExitCode::failed;
  }

  bool selftest_ = false;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> make_doctor() { return std::make_unique<Doctor>(); }

}  // namespace lowtide::tools

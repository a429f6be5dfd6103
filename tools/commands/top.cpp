// SPDX-License-Identifier: Apache-2.0
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <ctime>

#include "allocator/base/env.hpp"
#include "tools/command.hpp"
#include "tools/top/screen.hpp"
#include "tools/top/top_view.hpp"
#include "tools/view/counted.hpp"
#include "tools/view/terminal.hpp"

namespace lowtide::tools {
namespace {

constexpr std::size_t width_of_a_pipe = 200;

class Top final : public Command {
 public:
  void declare(CLI::App& app) override {
    app.add_flag("--once", once_, "Print it once, as lines");
    app.add_option("--interval", interval_, "Seconds between two looks")->check(CLI::Range(0.1, 3600.0));
    app.footer(
        "A bar for each device shows what its memory is used for; \"not tagged\" is what no tag of these processes "
        "has:\n"
        "contexts, libraries and other programs. RATE is what a pause or resume copies, else how resident bytes "
        "change.\n"
        "q ends it. Where stdout is no terminal it prints lines. For JSON: lowtide ps --json.\n\n"
        "Examples:\n"
        "  lowtide top\n"
        "  lowtide top --once\n\n" +
        exit_code_help());
  }

  ExitCode run() override {
    if (once_ || !stdout_is_terminal()) return print_lines();
    Screen screen(!env("NO_COLOR"));
    MachineStatus before;
    do {
      auto now = ask_machine();
      const auto rates = rates_between(before, now);
      screen.show(title_of(now), draw_machine(now, rates, screen.width()));
      before = std::move(now);
    } while (screen.wait(static_cast<int>(interval_ * 1000)));
    return ExitCode::ok;
  }

 private:
  static Line title_of(const MachineStatus& machine) {
    const auto time = fmt::format("{:%H:%M:%S}", fmt::localtime(std::time(nullptr)));
    return {{"lowtide top", Look::strong},
            {fmt::format("  {}  {}", time, counted(machine.processes.size() + machine.silent.size(), "process")),
             Look::plain},
            {"  q: end", Look::faint}};
  }

  ExitCode print_lines() const {
    MachineStatus before;
    for (;;) {
      auto now = ask_machine();
      fmt::print("{}", plain_text(draw_machine(now, rates_between(before, now), width_of_a_pipe)));
      if (once_) return now.problems.empty() ? ExitCode::ok : ExitCode::permission;
      fmt::print("\n");
      if (std::fflush(stdout) != 0) throw CommandError(ExitCode::failed, "stdout cannot be written");
      ::usleep(static_cast<useconds_t>(interval_ * 1e6));
      before = std::move(now);
    }
  }

  bool once_ = false;
  double interval_ = 1;
};

}  // namespace

std::unique_ptr<Command> make_top() { return std::make_unique<Top>(); }

}  // namespace lowtide::tools

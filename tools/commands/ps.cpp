// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tools/command.hpp"
#include "tools/processes/ask.hpp"
#include "tools/view/table.hpp"
#include "tools/view/terminal.hpp"

namespace lowtide::tools {
namespace {

std::vector<std::string> row_of(const ProcessStatus& status) {
  Bytes resident;
  Bytes parked;
  for (const auto& tag : status.tags) {
    resident += tag.resident;
    parked += tag.parked;
  }
  std::vector<int> devices;
  for (const auto& device : status.devices) devices.push_back(device.device);
  constexpr std::size_t most_of_a_command = 60;
  return {
      std::to_string(status.pid), fmt::format("{}{}", fmt::join(devices, ","), status.simulated ? " (simulated)" : ""),
      to_text(resident),          to_text(parked),
      printable(status.gate, 16), printable(status.command, most_of_a_command)};
}

class ListProcesses final : public Command {
 public:
  void declare(CLI::App& app) override {
    app.add_flag("--json", json_, "The status objects of docs/control-protocol.md on stdout");
    app.footer(
        "Root sees the processes of all users. A process appears with its first use of a GPU.\n\n"
        "Examples:\n"
        "  lowtide ps\n"
        "  lowtide ps --json | jq .processes[].pid\n\n" +
        exit_code_help());
  }

  ExitCode run() override {
    const auto listing = list_sockets();
    Table table({">PID", "DEVICES", ">RESIDENT", ">PARKED", "GATE", "COMMAND"});
    auto all = nlohmann::json::array();
    for (const auto& socket : listing.live) {
      try {
        const auto status = ask_status(socket);
        all.push_back(status.raw);
        table.add(row_of(status));
      } catch (const CommandError& error) {
        all.push_back({{"pid", socket.process.pid}, {"error", error.what()}});
        table.add({std::to_string(socket.process.pid), "-", "-", "-", "-", "(no answer)"});
        fmt::print(stderr, "lowtide: {}\n", error.what());
      }
    }
    const nlohmann::json object{{"ok", listing.problems.empty()}, {"processes", all}};
    fmt::print("{}",
               json_ ? object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + '\n' : table.text());
    for (const auto& problem : listing.problems) fmt::print(stderr, "lowtide: {}\n", problem.message());
    return listing.problems.empty() ? ExitCode::ok : ExitCode::permission;
  }

  bool json() const override { return json_; }

 private:
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> make_ps() { return std::make_unique<ListProcesses>(); }

}  // namespace lowtide::tools

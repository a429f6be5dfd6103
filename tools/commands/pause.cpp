// SPDX-License-Identifier: Apache-2.0
#include "tools/commands/transition_command.hpp"

namespace lowtide::tools {
namespace {

class Pause final : public TransitionCommand {
 public:
  Pause() : TransitionCommand(TransitionWish::Verb::pause) {}

  void declare(CLI::App& app) override {
    declare_common(app);
    app.add_flag_callback(
        "--no-hold", [this] { hold_ = false; },
        "Do not hold the process: it cooperates. One that uses parked memory meanwhile dies of an illegal address");
    add_text(app, "--timeout", timeout_, "Seconds to wait for the process to come to rest (default: gate.drain)")
        ->type_name("SECONDS");
    app.footer(
        "The process is held at its next launch, copy or memset until `lowtide resume`. If one process of several\n"
        "fails, or this command is interrupted, all are put back as they were; Ctrl-C once more ends it at once, and\n"
        "what is parked by then stays paused until `lowtide resume`.\n\n"
        "Examples:\n"
        "  lowtide pause 4711\n"
        "  lowtide pause 4711 --tag kv_cache --timeout 30\n"
        "  lowtide pause 4711 --json | jq .processes[].report.bytes_parked\n\n" +
        exit_code_help());
  }
};

}  // namespace

std::unique_ptr<Command> make_pause() { return std::make_unique<Pause>(); }

}  // namespace lowtide::tools

// SPDX-License-Identifier: Apache-2.0
#include "tools/commands/transition_command.hpp"

namespace lowtide::tools {
namespace {

class Resume final : public TransitionCommand {
 public:
  Resume() : TransitionCommand(TransitionWish::Verb::resume) {}

  void declare(CLI::App& app) override {
    declare_common(app);
    app.footer(
        "A resume for which the device has too little free memory changes nothing, says how much is missing, and can\n"
        "be repeated. If one process of several fails, the others are paused again. Ctrl-C ends this command only: a\n"
        "resume that has begun goes on in the process, and nothing is put back.\n\n"
        "Examples:\n"
        "  lowtide resume 4711\n"
        "  lowtide resume 4711 --tag kv_cache\n\n" +
        exit_code_help());
  }
};

}  // namespace

std::unique_ptr<Command> make_resume() { return std::make_unique<Resume>(); }

}  // namespace lowtide::tools

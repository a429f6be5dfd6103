// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cstdio>

#include "tools/command.hpp"
#include "tools/launch/containers.hpp"
#include "tools/launch/formats.hpp"
#include "tools/launch/launch_options.hpp"

namespace lowtide::tools {
namespace {

class Env final : public Command {
 public:
  void declare(CLI::App& app) override {
    const std::vector<CLI::Option*> forms{
        app.add_flag("--shell", shell_, "Lines for eval in a POSIX shell (the default)"),
        app.add_flag("--ray", ray_, "A runtime_env of Ray, in JSON"),
        app.add_flag("--k8s", pod_, "Parts of a Kubernetes pod's spec, in YAML"),
        app.add_flag("--docker", docker_, "Options of `docker run`, in one line"),
        app.add_flag("--json", json_, "The variables as one JSON object"),
    };
    for (auto* form : forms) {
      for (auto* other : forms) {
        if (other != form) form->excludes(other);
      }
    }
    launch_.declare(app);
    app.footer(
        "Prints what `lowtide run` would set, for launchers that start the programs themselves. What LD_PRELOAD and\n"
        "the LOWTIDE variables say already is kept, and the options win. See docs/deployment.md.\n\n"
        "Examples:\n"
        "  variables=$(lowtide env --tag weights) && eval \"$variables\" && python serve.py\n"
        "  ray job submit --runtime-env-json \"$(lowtide env --ray --tag weights)\" -- python train.py\n"
        "  lowtide env --k8s --set tag.kv_cache.fill=zero > patch.yaml\n"
        "  eval \"docker run --gpus all $(lowtide env --docker --tag weights) my-image python serve.py\"\n\n" +
        exit_code_help());
  }

  ExitCode run() override {
    const auto variables = LaunchOptions::variables(launch_.check());
    fmt::print("{}", text_of(variables));
    return ExitCode::ok;
  }

  bool json() const override { return json_; }

 private:
  std::string text_of(const Variables& variables) const {
    if (ray_) return as_ray(variables);
    if (pod_) return as_pod(variables);
    if (docker_) return as_docker_options(variables);
    if (json_) return as_json(variables);
    return as_exports(variables);
  }

  LaunchOptions launch_;
  bool shell_ = false;  // only there to exclude the others
  bool ray_ = false;
  bool pod_ = false;
  bool docker_ = false;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> make_env() { return std::make_unique<Env>(); }

}  // namespace lowtide::tools

// SPDX-License-Identifier: Apache-2.0
#include "tools/demo/play.hpp"

#include <fmt/format.h>

#include <chrono>
#include <thread>

#include "tools/exit_codes.hpp"
#include "tools/installation.hpp"

namespace lowtide::tools {
namespace {

/// The content of each tag, as the seed it is made from.
constexpr int weights_before_training = 1;
constexpr int weights_after_training = 2;
constexpr int lora_content = 3;
constexpr int kv_content = 4;
constexpr int trainer_content = 5;

Actor::Environment under_lowtide(Actor::Environment environment) {
  environment["LD_PRELOAD"] = with_preload("", preload_library());
  return environment;
}

Actor::Environment trainer_environment(Actor::Environment environment) {
  // The trainer knows nothing of Lowtide: all it allocates carries the default tag.
  environment["LOWTIDE_DEFAULT_TAG"] = "trainer";
  environment["LOWTIDE_CONF"] = "tag.trainer.pause:offload";
  return under_lowtide(std::move(environment));
}

class Play {
 public:
  Play(const DemoSizes& sizes, const Actor::Environment& environment,
       const std::function<void(const std::string&)>& said)
      : sizes_(sizes),
        said_(said),
        engine_("engine", under_lowtide(environment)),
        trainer_("trainer", trainer_environment(environment)) {}

  DemoResult run() {
    load_engine();
    pause(engine_, "engine paused");
    expect_standstill();
    train();
    pause(trainer_, "trainer paused");
    resume(engine_, "engine resumed");
    expect_progress();
    said_("every byte of the engine's weights and LoRA is compared");
    check(engine_, "weights", weights_before_training);
    check(engine_, "lora", lora_content);
    sync_weights();
    pause(engine_, "engine paused");
    resume(trainer_, "trainer resumed");
    check(trainer_, "-", trainer_content);
    said_("the trainer ends");
    trainer_.end();
    resume(engine_, "engine resumed");
    check(engine_, "weights", weights_after_training);
    check(engine_, "lora", lora_content);
    return std::move(result_);
  }

 private:
  void load_engine() {
    said_("the engine loads its weights, its LoRA adapters and a KV cache, and starts to work");
    allocate(engine_, "weights", sizes_.weights, weights_before_training);
    allocate(engine_, "lora", sizes_.lora, lora_content);
    allocate(engine_, "kv_cache", sizes_.kv_cache, kv_content);
    engine_.ask("work on");
    const auto status = engine_.status();
    if (!status.devices.empty()) {
      result_.device = status.devices.front().name;
      result_.device_total = status.devices.front().total;
    }
    expect_progress();
    note("rollout", "");
  }

  void train() {
    said_("the trainer takes the memory and trains");
    allocate(trainer_, "-", sizes_.trainer, trainer_content);
    trainer_.ask("work on");
    note("train", "");
  }

  void sync_weights() {
    said_("the engine gets new weights");
    engine_.ask(fmt::format("fill weights {}", weights_after_training));
    check(engine_, "weights", weights_after_training);
    note("weights updated", "");
  }

  void pause(Actor& actor, const std::string& phase) {
    said_(fmt::format("lowtide pause {} (the {}, at work)", actor.pid(), actor.name()));
    note(phase, seconds(actor.pause()));
  }

  void resume(Actor& actor, const std::string& phase) {
    said_(fmt::format("lowtide resume {} (the {})", actor.pid(), actor.name()));
    note(phase, seconds(actor.resume()));
  }

  static std::string seconds(const nlohmann::json& report) {
    return fmt::format("{:.3f} s", report.value("seconds", 0.0));
  }

  static void allocate(Actor& actor, const std::string& tag, Bytes size, int content) {
    actor.ask(fmt::format("allocate {} {} {}", tag, size.value, content));
  }

  void check(Actor& actor, const std::string& tag, int content) {
    result_.checked += Bytes{std::stoull(actor.ask(fmt::format("check {} {}", tag, content)))};
  }

  void expect_standstill() {
    const auto before = engine_.ask("steps");
    std::this_thread::sleep_for(std::chrono::milliseconds{200});
    if (engine_.ask("steps") != before) throw CommandError(ExitCode::failed, "demo: the paused engine went on working");
    result_.held = true;
  }

  void expect_progress() {
    const auto before = engine_.ask("steps");
    for (int tries = 0; tries < 1000; ++tries) {
      if (engine_.ask("steps") != before) return;
      std::this_thread::sleep_for(std::chrono::milliseconds{10});
    }
    throw CommandError(ExitCode::failed, "demo: the engine does not go on working");
  }

  void note(const std::string& phase, const std::string& took) {
    const auto engine = engine_.status();
    const auto trainer = trainer_.running() ? trainer_.status() : ProcessStatus{};
    Bytes used;
    for (const auto& device : engine.devices) used = device.total - device.free;
    result_.phases.push_back({phase, took, {engine.tags, trainer.tags}, used});
  }

  const DemoSizes sizes_;
  const std::function<void(const std::string&)>& said_;
  Actor engine_;
  Actor trainer_;
  DemoResult result_;
};

}  // namespace

DemoResult play(const DemoSizes& sizes, const Actor::Environment& environment,
                const std::function<void(const std::string&)>& said) {
  return Play(sizes, environment, said).run();
}

}  // namespace lowtide::tools

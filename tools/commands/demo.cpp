// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "allocator/base/env.hpp"
#include "tools/command.hpp"
#include "tools/demo/play.hpp"
#include "tools/doctor/probe.hpp"
#include "tools/installation.hpp"
#include "tools/view/table.hpp"
#include "tools/view/terminal.hpp"

namespace lowtide::tools {
namespace {

/// Together more than the simulated device has, so that neither could run while the other holds its memory.
constexpr DemoSizes simulated_sizes{256_MiB, 384_MiB, 32_MiB, 640_MiB};
constexpr const char* simulated_memory = "1024M";
constexpr DemoSizes device_sizes{4_GiB, 6_GiB, 512_MiB, 8_GiB};

/// A folder for the simulated device that all processes of the demo share.
class SharedFolder {
 public:
  SharedFolder() {
    std::string path = std::filesystem::temp_directory_path() / "lowtide-demo-XXXXXX";
    if (::mkdtemp(path.data()) == nullptr) throw CommandError(ExitCode::failed, "demo: no temporary folder: " + path);
    path_ = path;
  }
  SharedFolder(const SharedFolder&) = delete;
  SharedFolder& operator=(const SharedFolder&) = delete;
  ~SharedFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

const TagStatus* find(const std::vector<TagStatus>& tags, const std::string& name) {
  const auto found = std::find_if(tags.begin(), tags.end(), [&](const TagStatus& tag) { return tag.tag == name; });
  return found == tags.end() ? nullptr : &*found;
}

/// Where a tag's bytes are: on the device, on the host, nowhere.
std::string cell(const TagStatus* tag) {
  if (tag == nullptr) return "-";
  if (tag->parked.value == 0) return to_text(tag->resident);
  return tag->backup.value > 0 ? "on host" : "dropped";
}

std::string table_of(const DemoResult& result) {
  Table table({"PHASE", ">weights", ">kv_cache", ">lora", ">trainer", ">DEVICE USED", ">TOOK"});
  for (const auto& phase : result.phases) {
    const auto& engine = phase.roles[0];
    const auto& trainer = phase.roles[1];
    table.add({phase.name, cell(find(engine, "weights")), cell(find(engine, "kv_cache")), cell(find(engine, "lora")),
               cell(find(trainer, "trainer")), to_text(phase.device_used), phase.took});
  }
  return table.text();
}

nlohmann::json json_of(const DemoResult& result, bool simulated) {
  auto phases = nlohmann::json::array();
  for (const auto& phase : result.phases) {
    nlohmann::json tags = nlohmann::json::object();
    for (const auto& role : phase.roles) {
      for (const auto& tag : role) {
        tags[tag.tag] = {{"resident", tag.resident.value}, {"parked", tag.parked.value}, {"backup", tag.backup.value}};
      }
    }
    phases.push_back({{"phase", phase.name}, {"tags", tags}, {"device_used", phase.device_used.value}});
  }
  return {{"ok", true},
          {"simulated", simulated},
          {"device", result.device},
          {"phases", phases},
          {"bytes_checked", result.checked.value},
          {"bytes_wrong", 0}};
}

class Demo final : public Command {
 public:
  void declare(CLI::App& app) override {
    app.add_flag("--simulated", simulated_, "Play on the simulated GPU although there is a real one");
    app.add_flag("--json", json_, "The table as an object on stdout");
    app.footer(
        "Plays one step of colocated reinforcement learning with two processes on device 0: an engine with weights, "
        "KV\n"
        "cache and LoRA adapters, and a trainer. Each is paused and resumed from outside, as `lowtide pause PID` does, "
        "while\nit works; every byte that must survive is compared. Without a GPU it is played on the simulated one, "
        "on "
        "host memory.\n\n"
        "Examples:\n"
        "  lowtide demo\n"
        "  lowtide demo --simulated --json\n\n" +
        exit_code_help());
  }

  bool json() const override { return json_; }

  ExitCode run() override {
    const bool simulated = simulated_ || !has_device();
    Actor::Environment environment;
    std::optional<SharedFolder> folder;
    if (simulated) environment = simulated_device(folder.emplace().path());
    const auto said = [this](const std::string& line) {
      if (!json_) fmt::print(stderr, "  {}\n", line);
    };
    if (!json_) fmt::print(stderr, "One step of colocated RL on {}:\n", simulated ? "the simulated GPU" : "device 0");
    const auto result = play(simulated ? simulated_sizes : device_sizes, environment, said);
    if (json_) {
      fmt::print("{}\n", json_of(result, simulated).dump());
      return ExitCode::ok;
    }
    fmt::print("\n{} ({}{}), memory by tag at the end of each phase:\n\n{}\n", result.device,
               to_text(result.device_total), simulated ? ", simulated: host memory, no GPU" : "", table_of(result));
    fmt::print("{} read back and compared byte by byte: no difference. The engine {} while it was paused.\n",
               to_text(result.checked), result.held ? "stood still" : "went on");
    return ExitCode::ok;
  }

 private:
  static bool has_device() { return probe_devices().device_memory.has_value(); }

  static Actor::Environment simulated_device(const std::string& shared) {
    const auto driver = find_installed("simulated/libcuda.so.1");
    if (!driver)
      throw CommandError(
          ExitCode::failed,
          "demo: no GPU can be used (libcuda.so.1), and the simulated one is not installed with this command: run "
          "tools/dev/demo in a checkout");
    const auto others = env("LD_LIBRARY_PATH");
    return {{"LD_LIBRARY_PATH", driver->parent_path().string() + (others ? ":" + std::string(*others) : "")},
            {"LOWTIDE_SIM_DIR", shared},
            {"LOWTIDE_SIM_MEMORY", simulated_memory}};
  }

  bool simulated_ = false;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> make_demo() { return std::make_unique<Demo>(); }

}  // namespace lowtide::tools

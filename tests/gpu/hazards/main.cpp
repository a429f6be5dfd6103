// SPDX-License-Identifier: Apache-2.0
// The hazards of a pause, each played on a real driver (or the simulated one) through the doors:
//   LD_PRELOAD=.../liblowtide_preload.so gpu_hazards [--mib N] [--blocks N] [--only PART] [--list]
// Prints a line per hazard, `ok` or `FAIL`, and exits 1 if one failed. The door hazard of the addresses also runs bare.
#include <unistd.h>
#include <csignal>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "tests/gpu/hazards/stage.hpp"

namespace {

using hazards::Failed;
using hazards::Hazard;
using hazards::Sizes;
using hazards::Stage;

constexpr unsigned kLongestSeconds = 120;  // of one hazard: a deadlock is a failure with a name

struct Options {
  std::optional<std::size_t> mib;
  std::optional<std::size_t> blocks;
  std::string only;
  std::string role;
  bool list = false;
};

Options parse(int count, char** values) {
  Options options;
  for (int i = 1; i < count; ++i) {
    const std::string name = values[i];
    const char* value = i + 1 < count ? values[i + 1] : "";
    if (name == "--list") {
      options.list = true;
      continue;
    }
    if (name == "--mib") options.mib = std::strtoull(value, nullptr, 10);
    if (name == "--blocks") options.blocks = std::strtoull(value, nullptr, 10);
    if (name == "--only") options.only = value;
    if (name == "--role") options.role = value;
    ++i;
  }
  return options;
}

Sizes sizes_of(const Options& options) {
  Sizes sizes;
  if (hazards::driver().simulated) sizes = {std::size_t{4} << 20U, 6};
  if (options.mib) sizes.block_bytes = *options.mib << 20U;
  if (options.blocks) sizes.blocks = *options.blocks;
  return sizes;
}

std::vector<Hazard> all_hazards() {
  std::vector<Hazard> all;
  for (const auto& part : {hazards::door_hazards(), hazards::memory_hazards(), hazards::context_hazards(),
                           hazards::work_hazards(), hazards::paused_access_hazards(), hazards::pressure_hazards()}) {
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

const char* running = "";

void on_alarm(int) {
  for (const char* text : {"FAIL ", running, " (it hangs)\n"}) {
    if (write(1, text, std::strlen(text)) < 0) break;
  }
  _exit(1);
}

bool survives(const Hazard& hazard, Stage& stage) {
  running = hazard.name;
  alarm(kLongestSeconds);
  const auto start = std::chrono::steady_clock::now();
  std::string trouble;
  std::string numbers;
  try {
    numbers = hazard.run(stage);
  } catch (const Failed& failed) {
    trouble = failed.what;
  }
  stage.clear();
  alarm(0);
  const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
  std::printf("%s %s (%s; %.2f s)\n", trouble.empty() ? "ok  " : "FAIL", hazard.name,
              trouble.empty() ? numbers.c_str() : trouble.c_str(), time.count());
  std::fflush(stdout);
  return trouble.empty();
}

int run(const Options& options) {
  const Sizes sizes = sizes_of(options);
  if (!options.role.empty()) return hazards::play_role(options.role, sizes);
  Stage stage(sizes);
  char name[128] = "";
  hazards::driver().device_name(name, sizeof(name), 0);
  std::printf("%s%s, %zu blocks of about %zu MiB\n", name, hazards::driver().simulated ? " (simulated)" : "",
              sizes.blocks, sizes.block_bytes >> 20U);
  int passed = 0;
  int failed = 0;
  for (const Hazard& hazard : all_hazards()) {
    if (std::string(hazard.name).find(options.only) == std::string::npos) continue;
    ++(survives(hazard, stage) ? passed : failed);
  }
  std::printf("%d passed, %d failed\n", passed, failed);
  return failed == 0 && passed > 0 ? 0 : 1;
}

}  // namespace

int main(int count, char** values) {
  const Options options = parse(count, values);
  if (options.list) {
    for (const Hazard& hazard : all_hazards()) std::printf("%s\n", hazard.name);
    return 0;
  }
  std::signal(SIGALRM, on_alarm);
  try {
    return run(options);
  } catch (const Failed& failed) {
    std::fprintf(stderr, "gpu_hazards: %s\n", failed.what.c_str());
    return 2;
  }
}

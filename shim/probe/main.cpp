// SPDX-License-Identifier: Apache-2.0
// lowtide-probe: chooses a backend for every device, as a process under Lowtide would, and prints one line of JSON.
// --selftest: tries all that each device could have, and says what was found. A program of its own, because a driver
// that misbehaves, or hangs, must not take `lowtide doctor` with it.
#include <dlfcn.h>
#include <sys/utsname.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <optional>

#include "allocator/base/json_writer.hpp"
#include "allocator/base/log.hpp"
#include "allocator/policy/configuration.hpp"
#include "shim/cuda_platform.hpp"
#include "shim/hip_platform.hpp"
#include "shim/loader/vendor_library.hpp"
#include "shim/probe/selftest.hpp"

namespace lowtide {
namespace {

void write_choice(JsonWriter& json, std::span<const Candidate> ladder, const std::string& forced, ContextId context) {
  const auto backend = choose_backend(ladder, forced, context);
  if (!backend) {
    json.field("backend", "none").field("reason", backend.error().message());
    return;
  }
  const auto memory = (*backend)->memory_info().value_or(MemoryInfo{});
  json.field("name", (*backend)->device_name()).field("backend", (*backend)->name());
  json.field("reason", (*backend)->reason()).field("granularity", (*backend)->capabilities().granularity);
  json.field("free", memory.free).field("total", memory.total);
}

/// What each device is asked.
struct Question {
  std::string forced;
  bool selftest;
};

void write_device(JsonWriter& json, Platform& platform, int ordinal, const Question& question) {
  json.begin_object().field("device", ordinal);
  const auto context = platform.own_context(ordinal, nullptr);
  const auto status = !context ? Status(fail(context.error())) : platform.in_context(*context, [&]() -> Status {
    const auto ladder = platform.ladder(DeviceId{ordinal});
    write_choice(json, ladder, question.forced, *context);
    if (question.selftest) write_selftest(json, ladder, *context);
    return {};
  });
  if (!status) json.field("backend", "none").field("reason", status.error().message());
  json.end_object();
}

/// The kernel module's version, "580.159.04"; nothing where there is none (the simulated GPU).
std::optional<std::string> kernel_driver(lowtide_vendor vendor) {
  std::ifstream file(vendor == LOWTIDE_CUDA ? "/sys/module/nvidia/version" : "/sys/module/amdgpu/version");
  std::string version;
  if (!(file >> version)) return std::nullopt;
  return version;
}

void write_driver(JsonWriter& json, Platform& platform, const RealLoader& loader) {
  const bool is_cuda = platform.vendor() == LOWTIDE_CUDA;
  json.key("driver");
  if (const auto kernel = kernel_driver(platform.vendor()))
    json.value(*kernel);
  else
    json.null();
  json.field(is_cuda ? "cuda" : "hip", platform.version());
  void* const library = open_vendor_library(loader, platform.vendor());
  Dl_info info{};
  const bool found =
      ::dladdr(loader.dlsym(library, is_cuda ? "cuInit" : "hipMalloc"), &info) != 0 && info.dli_fname != nullptr;
  json.field("library", found ? info.dli_fname : "");
  utsname system{};
  (void)::uname(&system);
  json.field("system", std::string(system.sysname) + " " + system.release + " " + system.machine);
  json.field("simulated", platform.simulated());
}

/// The first vendor whose library can be opened and has a device, with the count of its devices; else why none of them.
Result<std::pair<Platform*, int>> choose_platform(std::span<Platform* const> platforms, const RealLoader& loader) {
  std::string why;
  for (Platform* platform : platforms) {
    const auto loaded = platform->load(loader);
    const auto count = loaded ? platform->device_count() : fail(loaded.error());
    if (count) return std::pair{platform, *count};
    why.append(why.empty() ? "" : "; ").append(count.error().message());
  }
  return fail(Code::unsupported, why.c_str());
}

Result<std::string> report(bool selftest) {
  set_log_level(LogLevel::off);
  // A configuration that cannot be used is the doctor's own finding.
  const auto configuration = load_configuration(sources_from_environment());
  const RealLoader loader = find_real_loader();
  CudaPlatform cuda;
  HipPlatform hip;
  Platform* const platforms[] = {&cuda, &hip};
  const auto chosen = choose_platform(platforms, loader);
  if (!chosen) return fail(chosen.error());
  const auto [platform, count] = *chosen;

  JsonWriter json;
  json.begin_object().field("lowtide", LOWTIDE_VERSION);
  write_driver(json, *platform, loader);
  json.key("devices").begin_array();
  const Question question{configuration ? configuration->backend : "", selftest};
  for (int ordinal = 0; ordinal < count; ++ordinal) write_device(json, *platform, ordinal, question);
  json.end_array().end_object();
  return json.take();
}

}  // namespace
}  // namespace lowtide

int main(int argc, char** argv) {
  const auto text = lowtide::report(argc > 1 && std::strcmp(argv[1], "--selftest") == 0);
  if (text) {
    std::puts(text->c_str());
    return 0;
  }
  lowtide::JsonWriter json;
  json.begin_object().field("error", text.error().message()).end_object();
  std::puts(json.text().c_str());
  return 1;
}

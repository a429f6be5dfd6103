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
#include "shim/cuda_ladder.hpp"
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

void write_device(JsonWriter& json, const cuda::Driver& driver, int ordinal, const Question& question) {
  json.begin_object().field("device", ordinal);
  CUdevice device = 0;
  CUcontext context = nullptr;
  auto result = driver.cuDeviceGet(&device, ordinal);
  if (result == CUDA_SUCCESS) result = driver.cuDevicePrimaryCtxRetain(&context, device);
  if (result != CUDA_SUCCESS) {
    json.field("backend", "none");
    json.field("reason", driver.error(result, "cuDevicePrimaryCtxRetain").message()).end_object();
    return;
  }
  {
    const cuda::ContextGuard guard(driver, context);
    const ContextId id{reinterpret_cast<std::uintptr_t>(context)};
    portable::RecreatedMemory memory;
    const auto ladder = cuda_ladder(driver, DeviceId{ordinal}, memory);
    write_choice(json, ladder, question.forced, id);
    if (question.selftest) write_selftest(json, ladder, id);
  }
  json.end_object();
  (void)driver.cuDevicePrimaryCtxRelease_v2(device);
}

/// The kernel module's version, "580.159.04"; nothing where there is none (the simulated GPU).
std::optional<std::string> kernel_driver() {
  std::ifstream file("/sys/module/nvidia/version");
  std::string version;
  if (!(file >> version)) return std::nullopt;
  return version;
}

void write_driver(JsonWriter& json, const cuda::Driver& driver, void* library) {
  json.key("driver");
  if (const auto kernel = kernel_driver())
    json.value(*kernel);
  else
    json.null();
  int version = 0;
  (void)driver.cuDriverGetVersion(&version);
  json.field("cuda", std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10));
  Dl_info info{};
  const bool found = ::dladdr(::dlsym(library, "cuInit"), &info) != 0 && info.dli_fname != nullptr;
  json.field("library", found ? info.dli_fname : "");
  utsname system{};
  (void)::uname(&system);
  json.field("system", std::string(system.sysname) + " " + system.release + " " + system.machine);
  json.field("simulated", ::dlsym(library, "lowtide_sim_is_simulated") != nullptr);
}

Result<std::string> report(bool selftest) {
  set_log_level(LogLevel::off);
  // A configuration that cannot be used is the doctor's own finding.
  const auto configuration = load_configuration(sources_from_environment());
  void* library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return fail(Code::unsupported, "libcuda.so.1 was not found: no CUDA driver is installed");
  const auto driver = cuda::load_driver(&::dlsym, library);
  if (!driver) return fail(driver.error());
  int count = 0;
  auto result = driver->cuInit(0);
  if (result == CUDA_SUCCESS) result = driver->cuDeviceGetCount(&count);
  if (result != CUDA_SUCCESS) return fail(driver->error(result, "cuInit"));

  JsonWriter json;
  json.begin_object().field("lowtide", LOWTIDE_VERSION);
  write_driver(json, *driver, library);
  json.key("devices").begin_array();
  const Question question{configuration ? configuration->backend : "", selftest};
  for (int ordinal = 0; ordinal < count; ++ordinal) write_device(json, *driver, ordinal, question);
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

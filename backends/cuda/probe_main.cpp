// SPDX-License-Identifier: Apache-2.0
// lowtide-probe: tries every device and prints one line of JSON. A program of its own, because a driver that
// misbehaves, or hangs, must not take `lowtide doctor` with it.
#include <dlfcn.h>

#include <cstdio>
#include <fstream>
#include <optional>

#include "allocator/base/json_writer.hpp"
#include "backends/cuda/probe.hpp"

namespace lowtide::cuda {
namespace {

void write_device(JsonWriter& json, const Driver& driver, int ordinal) {
  json.begin_object().field("device", ordinal);
  CUdevice device = 0;
  CUcontext context = nullptr;
  auto result = driver.cuDeviceGet(&device, ordinal);
  if (result == CUDA_SUCCESS) result = driver.cuDevicePrimaryCtxRetain(&context, device);
  if (result != CUDA_SUCCESS) {
    json.field("error", driver.error(result, "cuDevicePrimaryCtxRetain").message()).end_object();
    return;
  }
  {
    const ContextGuard guard(driver, context);
    const auto backend = probe(driver, DeviceId{ordinal}, {reinterpret_cast<std::uintptr_t>(context)});
    if (backend) {
      const auto memory = (*backend)->memory_info().value_or(MemoryInfo{});
      json.field("name", (*backend)->device_name()).field("backend", (*backend)->name());
      json.field("reason", (*backend)->reason()).field("granularity", (*backend)->capabilities().granularity);
      json.field("free", memory.free).field("total", memory.total);
    } else {
      json.field("backend", "off").field("reason", backend.error().message());
    }
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

Result<std::string> report() {
  void* library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return fail(Code::unsupported, "libcuda.so.1 was not found: no CUDA driver is installed");
  const auto driver = load_driver(&::dlsym, library);
  if (!driver) return fail(driver.error());
  int count = 0;
  int version = 0;
  auto result = driver->cuInit(0);
  if (result == CUDA_SUCCESS) result = driver->cuDeviceGetCount(&count);
  if (result != CUDA_SUCCESS) return fail(driver->error(result, "cuInit"));
  (void)driver->cuDriverGetVersion(&version);

  JsonWriter json;
  json.begin_object().key("driver");
  if (const auto kernel = kernel_driver())
    json.value(*kernel);
  else
    json.null();
  json.field("cuda", std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10));
  json.field("simulated", ::dlsym(library, "lowtide_sim_is_simulated") != nullptr);
  json.key("devices").begin_array();
  for (int ordinal = 0; ordinal < count; ++ordinal) write_device(json, *driver, ordinal);
  json.end_array().end_object();
  return json.take();
}

}  // namespace
}  // namespace lowtide::cuda

int main() {
  const auto text = lowtide::cuda::report();
  if (text) {
    std::puts(text->c_str());
    return 0;
  }
  lowtide::JsonWriter json;
  json.begin_object().field("error", text.error().message()).end_object();
  std::puts(json.text().c_str());
  return 1;
}

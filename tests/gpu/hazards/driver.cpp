// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/hazards/driver.hpp"

#include <dlfcn.h>
#include <unistd.h>

#include <array>
#include <climits>
#include <cstdio>
#include <cstdlib>

namespace hazards {
namespace {

template <typename Function>
void look_up(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (function == nullptr) std::fprintf(stderr, "gpu_hazards: %s is missing\n", name);
}

// The state library: already loaded by the preload, or beside the build tree's tests/ folder.
void* open_lowtide() {
  if (void* loaded = dlopen("liblowtide.so", RTLD_NOW | RTLD_NOLOAD); loaded != nullptr) return loaded;
  std::array<char, PATH_MAX> path{};
  const ssize_t length = readlink("/proc/self/exe", path.data(), path.size() - 1);
  const std::string own(path.data(), length > 0 ? static_cast<std::size_t>(length) : 0);
  return dlopen((own.substr(0, own.rfind('/')) + "/../lib/liblowtide.so").c_str(), RTLD_NOW);
}

void load_lowtide(Driver& driver) {
  void* library = open_lowtide();
  if (library == nullptr) {
    std::fprintf(stderr, "gpu_hazards: no liblowtide.so: %s\n", dlerror());
    return;
  }
  look_up(library, "lowtide_scope_begin", driver.scope_begin);
  look_up(library, "lowtide_scope_end", driver.scope_end);
  look_up(library, "lowtide_set", driver.set);
  look_up(library, "lowtide_read_paused", driver.read_paused);
  look_up(library, "lowtide_write_paused", driver.write_paused);
  look_up(library, "lowtide_pause", driver.pause);
  look_up(library, "lowtide_resume", driver.resume);
  look_up(library, "lowtide_get_tag_info", driver.tag_info);
  look_up(library, "lowtide_last_error", driver.last_error);
}

void load_memory_and_contexts(void* library, Driver& driver) {
  look_up(library, "cuInit", driver.init);
  look_up(library, "cuDeviceGetName", driver.device_name);
  look_up(library, "cuDevicePrimaryCtxRetain", driver.primary_context);
  look_up(library, "cuCtxCreate_v2", driver.create_context);
  look_up(library, "cuCtxDestroy_v2", driver.destroy_context);
  look_up(library, "cuCtxSetCurrent", driver.set_context);
  look_up(library, "cuCtxSynchronize", driver.synchronize);
  look_up(library, "cuMemAlloc_v2", driver.allocate);
  look_up(library, "cuMemFree_v2", driver.free);
  look_up(library, "cuMemGetInfo_v2", driver.memory_info);
  look_up(library, "cuMemGetAddressRange_v2", driver.address_range);
  look_up(library, "cuMemcpyHtoD_v2", driver.to_device);
  look_up(library, "cuMemcpyDtoH_v2", driver.to_host);
  look_up(library, "cuMemcpyDtoD_v2", driver.within);
  look_up(library, "cuMemsetD8_v2", driver.set_bytes);
  look_up(library, "cuGetProcAddress_v2", driver.proc_address);
  look_up(library, "cuGetErrorName", driver.error_name);
}

void load_work(void* library, Driver& driver) {
  look_up(library, "cuStreamCreate", driver.create_stream);
  look_up(library, "cuStreamDestroy_v2", driver.destroy_stream);
  look_up(library, "cuStreamSynchronize", driver.synchronize_stream);
  look_up(library, "cuStreamBeginCapture_v2", driver.begin_capture);
  look_up(library, "cuStreamEndCapture", driver.end_capture);
  look_up(library, "cuGraphInstantiateWithFlags", driver.instantiate);
  look_up(library, "cuGraphLaunch", driver.launch_graph);
  look_up(library, "cuGraphExecDestroy", driver.destroy_executable);
  look_up(library, "cuGraphDestroy", driver.destroy_graph);
  look_up(library, "cuModuleLoadData", driver.load_module);
  look_up(library, "cuModuleGetFunction", driver.get_function);
  look_up(library, "cuLaunchKernel", driver.launch);
}

Driver load() {
  Driver driver{};
  driver.library = dlopen("libcuda.so.1", RTLD_NOW);
  if (driver.library == nullptr) {
    std::fprintf(stderr, "gpu_hazards: no driver: %s\n", dlerror());
    std::exit(2);
  }
  load_memory_and_contexts(driver.library, driver);
  load_work(driver.library, driver);
  driver.simulated = dlsym(driver.library, "lowtide_sim_is_simulated") != nullptr;
  load_lowtide(driver);
  return driver;
}

}  // namespace

const Driver& driver() {
  static const Driver instance = load();
  return instance;
}

void require(bool ok, const std::string& what) {
  if (!ok) throw Failed{what};
}

std::string name_of(CUresult result) {
  const char* name = nullptr;
  if (driver().error_name(result, &name) == CUDA_SUCCESS && name != nullptr) return name;
  return std::to_string(static_cast<int>(result));
}

void must(CUresult result, const char* call) {
  if (result != CUDA_SUCCESS) throw Failed{std::string(call) + ": " + name_of(result)};
}

}  // namespace hazards

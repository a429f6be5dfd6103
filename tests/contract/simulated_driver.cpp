// SPDX-License-Identifier: Apache-2.0
#include "tests/contract/simulated_driver.hpp"

#include <dlfcn.h>

#include <cstdlib>
#include <stdexcept>

namespace lowtide::test {

cuda::Driver open_driver(const std::string& path, void** library) {
  void* const opened = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (opened == nullptr) throw std::runtime_error(::dlerror());
  if (library != nullptr) *library = opened;
  const auto driver = cuda::load_driver([](void* from, const char* name) { return ::dlsym(from, name); }, opened);
  if (!driver) throw std::runtime_error(driver.error().message());
  if (driver->cuInit(0) != CUDA_SUCCESS) throw std::runtime_error(path + ": cuInit failed");
  return *driver;
}

SimulatedDriver::SimulatedDriver() {
  ::setenv("LOWTIDE_SIM_DEVICES", "2", 0);
  ::setenv("LOWTIDE_SIM_MEMORY", "512M", 0);
  driver_ = open_driver(LOWTIDE_SIM_LIBRARY, &library_);
  access_ = reinterpret_cast<decltype(access_)>(::dlsym(library_, "cuMemGetAccess"));
  counts_ = reinterpret_cast<decltype(counts_)>(::dlsym(library_, "lowtide_sim_counts"));
}

SimulatedDriver& SimulatedDriver::instance() {
  static SimulatedDriver driver;
  return driver;
}

bool SimulatedDriver::accessible_from(int device, CUdeviceptr address) const noexcept {
  const CUmemLocation location{CU_MEM_LOCATION_TYPE_DEVICE, {device}};
  unsigned long long flags = 0;
  return access_(&flags, &location, address) == CUDA_SUCCESS && flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
}

bool SimulatedDriver::readable_from(int device, CUdeviceptr address) const noexcept {
  const CUmemLocation location{CU_MEM_LOCATION_TYPE_DEVICE, {device}};
  unsigned long long flags = 0;
  return access_(&flags, &location, address) == CUDA_SUCCESS && flags == CU_MEM_ACCESS_FLAGS_PROT_READ;
}

lowtide_sim_live SimulatedDriver::live() const noexcept {
  lowtide_sim_live live{};
  live.struct_size = sizeof live;
  counts_(&live);
  return live;
}

}  // namespace lowtide::test

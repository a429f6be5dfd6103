// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "backends/cuda/driver.hpp"
#include "backends/simulated/sim_control.h"

namespace lowtide::test {

/// The simulated libcuda.so.1, loaded once per process: two devices of 512 MiB unless the environment says otherwise.
class SimulatedDriver {
 public:
  static SimulatedDriver& instance();

  const cuda::Driver& driver() const noexcept { return driver_; }
  void* library() const noexcept { return library_; }
  /// What this process has of the devices now.
  lowtide_sim_live live() const noexcept;
  /// Whether kernels of `device` may write to `address`.
  bool accessible_from(int device, CUdeviceptr address) const noexcept;
  /// Whether they may read there and not write.
  bool readable_from(int device, CUdeviceptr address) const noexcept;

 private:
  SimulatedDriver();

  void* library_ = nullptr;
  cuda::Driver driver_;
  decltype(&::cuMemGetAccess) access_ = nullptr;
  void (*counts_)(lowtide_sim_live*) = nullptr;
};

/// Opens a driver library and looks its functions up. The library stays loaded; an error ends the test program.
cuda::Driver open_driver(const std::string& path, void** library = nullptr);

}  // namespace lowtide::test

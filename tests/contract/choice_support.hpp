// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/log.hpp"
#include "shim/cuda_ladder.hpp"
#include "tests/catch.hpp"
#include "tests/contract/world.hpp"

namespace lowtide::test {

inline const cuda::Driver& simulated() { return SimulatedDriver::instance().driver(); }

/// The primary context of device 0, for as long as a test needs it.
class Primary {
 public:
  Primary() {
    set_log_level(LogLevel::off);
    REQUIRE(simulated().cuDevicePrimaryCtxRetain(&context_, 0) == CUDA_SUCCESS);
  }
  Primary(const Primary&) = delete;
  Primary& operator=(const Primary&) = delete;
  ~Primary() { (void)simulated().cuDevicePrimaryCtxRelease_v2(0); }
  ContextId id() const { return {reinterpret_cast<std::uintptr_t>(context_)}; }
  Result<std::unique_ptr<Backend>> choose(const cuda::Driver& driver, const char* forced = "") {
    return choose_backend(cuda_ladder(driver, DeviceId{0}, memory_), forced, id());
  }

 private:
  CUcontext context_ = nullptr;
  portable::RecreatedMemory memory_;
};

}  // namespace lowtide::test

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "allocator/include/lowtide/lowtide.h"

namespace copies {

/// What the hazards' table of driver functions lacks. Those for VMM are the driver's own, past every door.
struct Extra {
  decltype(&::cuMemHostAlloc) host_alloc;
  decltype(&::cuMemFreeHost) host_free;
  decltype(&::cuMemHostRegister) register_host;
  decltype(&::cuMemHostUnregister) unregister_host;
  decltype(&::cuMemcpyHtoDAsync) to_device_async;
  decltype(&::cuMemcpyDtoHAsync) to_host_async;
  decltype(&::cuDeviceGetAttribute) attribute;
  decltype(&::cuMemAddressReserve) reserve;
  decltype(&::cuMemCreate) create;
  decltype(&::cuMemRelease) release;
  decltype(&::cuMemMap) map;
  decltype(&::cuMemUnmap) unmap;
  decltype(&::cuMemSetAccess) set_access;
  decltype(&::lowtide_set) set;  ///< null without liblowtide.so
};
/// The one instance; throws hazards::Failed if the driver lacks a function.
const Extra& extra();

/// CLOCK_MONOTONIC, the same for all processes.
std::int64_t now_ns();

/// Bytes per second of a pinned buffer, in the median of five copies.
struct Link {
  double to_host;
  double to_device;
};
Link measure_link(std::size_t bytes);

/// Touches so much host memory by all processors and gives it back: a fresh virtual machine gets its memory from its
/// host at the first touch. Returns seconds.
double warm_host(std::size_t bytes);

/// The most host memory used from its construction to `end`, looked at every 5 ms: pages of this process that no file
/// is behind, and what the whole machine has left, since memory that a driver pins belongs to no process.
class HostWatch {
 public:
  HostWatch();
  ~HostWatch();
  HostWatch(const HostWatch&) = delete;
  HostWatch& operator=(const HostWatch&) = delete;

  struct Seen {
    std::int64_t own_before, own_peak, available_before, available_least;
  };
  Seen end();

 private:
  void look();
  Seen seen_{};
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};
std::int64_t available_bytes();

/// Blocks made by the bare driver calls, with the properties that Lowtide's have: each in a reservation of its own.
class BareBlocks {
 public:
  BareBlocks(std::size_t count, std::size_t bytes);
  void pause();
  void resume();
  [[nodiscard]] const std::vector<CUdeviceptr>& addresses() const { return addresses_; }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }

 private:
  std::size_t bytes_;
  CUmemAllocationProp properties_{};
  std::vector<CUdeviceptr> addresses_;
  std::vector<CUmemGenericAllocationHandle> handles_;
};

}  // namespace copies

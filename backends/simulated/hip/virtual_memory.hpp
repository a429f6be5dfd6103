// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <mutex>
#include <vector>

#include "allocator/base/unique_fd.hpp"
#include "backends/simulated/hip/hip_abi.hpp"
#include "backends/simulated/personas.hpp"

namespace lowtide::sim::hip {

/// Virtual memory management with the defects of a persona: the driver's, where it has none. Thread-safe.
class VirtualMemory {
 public:
  /// `driver` is filled in before the first call, and outlives it.
  explicit VirtualMemory(const Driver& driver) : driver_(driver) {}
  void play(const Persona& persona) { persona_ = &persona; }

  bool supported() const { return !persona_->without_vmm; }

  CUresult reserve(CUdeviceptr* out, std::size_t size, std::size_t alignment, CUdeviceptr hint);
  CUresult free_reservation(CUdeviceptr address, std::size_t size);
  CUresult create(CUmemGenericAllocationHandle* out, std::size_t size, const CUmemAllocationProp& properties);
  CUresult release(CUmemGenericAllocationHandle handle);
  CUresult map(CUdeviceptr address, std::size_t size, std::size_t offset, CUmemGenericAllocationHandle handle);
  CUresult unmap(CUdeviceptr address, std::size_t size);
  CUresult retain_at(CUmemGenericAllocationHandle* out, CUdeviceptr address);
  /// Whether an IPC handle is given for mapped memory, and `address` lies in such.
  bool shows_to_others(CUdeviceptr address);

 private:
  using Handles = std::vector<CUmemGenericAllocationHandle>;
  struct Reservation {
    std::size_t size;
    Handles kept;  ///< a reference each to what was mapped here, so that it stays in use
  };
  struct Descriptor {
    UniqueFd file;
    int references = 1;
  };

  CUresult reserve_elsewhere(CUdeviceptr* out, std::size_t size, std::size_t alignment, CUdeviceptr hint);
  CUresult retain_all(CUdeviceptr address, std::size_t size, Handles& out);
  void release_all(const Handles& handles);
  Reservation* reservation_at(CUdeviceptr address);

  const Driver& driver_;
  const Persona* persona_ = personas.data();
  std::mutex mutex_;
  std::map<CUdeviceptr, Reservation> reservations_;
  std::map<CUdeviceptr, std::size_t> mappings_;  ///< size by address
  std::map<CUmemGenericAllocationHandle, Descriptor> descriptors_;
};

}  // namespace lowtide::sim::hip

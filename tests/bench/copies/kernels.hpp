// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda.h>

#include <cstdint>

namespace copies {

/// Random bytes and sums of them, on the device. On the simulated GPU, which runs no PTX, its own kernel fills and the
/// host sums. For one context, which must be current; not thread-safe.
class Kernels {
 public:
  /// Loads the kernels, and throws hazards::Failed if they do not compute what the host does.
  Kernels();
  /// The 8 bytes at 8*i become splitmix64(seed + i). `bytes` is a multiple of 8. Does not wait.
  void fill(CUdeviceptr address, std::size_t bytes, std::uint64_t seed) const;
  /// Puts the sum into a slot on the device, without waiting; see `read`. A moved word changes the sum too.
  void sum(CUdeviceptr address, std::size_t bytes, std::size_t slot);
  /// Waits for everything, and copies the first `count` slots.
  void read(std::uint64_t* sums, std::size_t count) const;

  static constexpr std::size_t slots = 1 << 15;

 private:
  void launch(CUfunction kernel, std::size_t words, void** arguments) const;
  void try_out();

  CUfunction fill_ = nullptr;
  CUfunction sum_ = nullptr;
  CUdeviceptr sums_ = 0;
};

std::uint64_t splitmix64(std::uint64_t x);

}  // namespace copies

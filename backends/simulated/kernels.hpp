// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "backends/simulated/context.hpp"

namespace lowtide::sim {

/// What a kernel runs with.
struct KernelRun {
  Memory& memory;
  Actor actor;
  const std::atomic<bool>& cancelled;  ///< its context is being destroyed
  std::uint64_t blocks;                ///< of the grid
};

/// Where a kernel comes from.
enum class Image : std::uint8_t { tests, page_digest, blank };

/// The image that a program loads, if it is known: the tests' own, or the text of one of backends/cuda/kernels/*.ptx.
std::optional<Image> recognise(const char* image);

/// A variable of an image's module.
struct Global {
  std::string_view name;
  std::uint64_t size;
};
/// The only one of `image`; of size 0 if it has none.
Global global_of(Image image);

/// A kernel of ours, written in C++: sim_control.h describes those of the tests, and those of backends/cuda/kernels
/// have references on the host.
struct Kernel {
  Image image;
  std::string_view name;
  std::size_t parameters;  ///< each 64 bits wide
  CUresult (*run)(const KernelRun& run, std::span<const std::uint64_t> arguments);
};

/// nullptr if `image` has none of that name.
const Kernel* find_kernel(Image image, std::string_view name);

}  // namespace lowtide::sim

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string_view>

#include "backends/simulated/context.hpp"

namespace lowtide::sim {

/// What a kernel runs with.
struct KernelRun {
  Memory& memory;
  Actor actor;
  const std::atomic<bool>& cancelled;  ///< its context is being destroyed
};

/// A kernel of ours, written in C++. sim_control.h describes each.
struct Kernel {
  std::string_view name;
  std::size_t parameters;  ///< each 64 bits wide
  CUresult (*run)(const KernelRun& run, std::span<const std::uint64_t> arguments);
};

/// nullptr if there is none of that name.
const Kernel* find_kernel(std::string_view name);

}  // namespace lowtide::sim

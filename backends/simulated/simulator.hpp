// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <new>
#include <string>

#include "allocator/base/immortal.hpp"
#include "backends/simulated/capacity.hpp"
#include "backends/simulated/capture.hpp"
#include "backends/simulated/context.hpp"
#include "backends/simulated/faults.hpp"
#include "backends/simulated/kernels.hpp"
#include "backends/simulated/memory.hpp"
#include "backends/simulated/settings.hpp"
#include "backends/simulated/stream.hpp"

namespace lowtide::sim {

constexpr int driver_version = 13000;

struct Module {
  ContextPtr context;
  Image image;
  Address global;  ///< its variable; 0 if it has none
};

struct KernelFunction {
  std::shared_ptr<Module> module;
  const Kernel* kernel;
};

/// The whole state of the simulated driver: one object, made at the first call and never destroyed. The files abi_*.cpp
/// are thin skins of C functions over it.
class Simulator {
 public:
  static Simulator& instance();

  /// cuInit. Says on stderr what is wrong with the environment.
  CUresult initialise();
  /// CUDA_SUCCESS between cuInit and the end of the process; never again in a forked child.
  CUresult state() const { return state_.load(std::memory_order_acquire); }
  bool forked() const { return forked_.load(std::memory_order_acquire); }

  bool has_device(int device) const { return device >= 0 && device < settings.devices; }
  /// The stream that `handle` means in `function`; CUDA_ERROR_INVALID_HANDLE for a stale one.
  CUresult stream(Function function, const ContextPtr& context, CUstream handle, StreamPtr& out);
  /// See Captures::check_unsafe.
  CUresult check_unsafe();

  Settings settings;
  Faults faults;
  Capacity capacity;
  Memory memory{capacity};
  Monitor monitor;
  Streams streams{monitor};
  Contexts contexts{monitor, streams, memory};
  // Guarded by the monitor:
  Captures captures;
  Handles<CUstream, Stream> stream_handles{0x570000000010};
  Handles<CUevent, Event> events{0xe70000000010};
  Handles<CUgraph, Graph> graphs{0x670000000010};
  Handles<CUgraphExec, Graph> executables{0x6e0000000010};
  Handles<CUmodule, Module> modules{0x3d0000000010};
  Handles<CUfunction, KernelFunction> kernel_functions{0xf00000000010};

 private:
  friend class lowtide::Immortal<Simulator>;
  Simulator();
  void drop_context_locked(const ContextPtr& context);

  std::mutex initialising_;
  std::string complaint_;  ///< why the environment cannot be used
  std::atomic<CUresult> state_{CUDA_ERROR_NOT_INITIALIZED};
  std::atomic<bool> forked_{false};
};

/// Every exported function runs inside one of these three: they count the call, let the fault plan answer it before it
/// has any effect, check what the call needs, and keep exceptions in.
template <class Body>
CUresult answer(Function function, Body&& body) noexcept {
  try {
    auto& simulator = Simulator::instance();
    if (simulator.forked()) return CUDA_ERROR_NOT_INITIALIZED;
    if (const auto failure = simulator.faults.next(function); failure != CUDA_SUCCESS) return failure;
    return body(simulator);
  } catch (const std::bad_alloc&) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  } catch (...) {
    return CUDA_ERROR_UNKNOWN;
  }
}

/// For functions that work after cuInit.
template <class Body>
CUresult with_driver(Function function, Body&& body) noexcept {
  return answer(function, [&](Simulator& simulator) {
    const auto state = simulator.state();
    return state == CUDA_SUCCESS ? body(simulator) : state;
  });
}

/// For functions that work in the current context, and answer its error once it has one.
template <class Body>
CUresult with_context(Function function, Body&& body) noexcept {
  return with_driver(function, [&](Simulator& simulator) {
    ContextPtr context;
    if (const auto none = simulator.contexts.current(context); none != CUDA_SUCCESS) return none;
    if (const auto error = context->error.load(); error != CUDA_SUCCESS) return error;
    return static_cast<CUresult>(body(simulator, context));
  });
}

/// The same for functions that a stream capture forbids.
template <class Body>
CUresult with_context_outside_capture(Function function, Body&& body) noexcept {
  return with_context(function, [&](Simulator& simulator, const ContextPtr& context) {
    if (const auto unsafe = simulator.check_unsafe(); unsafe != CUDA_SUCCESS) return unsafe;
    return static_cast<CUresult>(body(simulator, context));
  });
}

/// For functions that work in a stream of the current context.
template <class Body>
CUresult in_stream(Function function, CUstream handle, Body&& body) noexcept {
  return with_context(function, [&](Simulator& simulator, const ContextPtr& context) {
    StreamPtr stream;
    if (const auto stale = simulator.stream(function, context, handle, stream); stale != CUDA_SUCCESS) return stale;
    return static_cast<CUresult>(body(simulator, stream));
  });
}

}  // namespace lowtide::sim

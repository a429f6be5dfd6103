// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include "backends/simulated/memory.hpp"
#include "backends/simulated/stream.hpp"

namespace lowtide::sim {

struct Context {
  CUcontext handle = nullptr;
  int device = 0;
  bool primary = false;
  unsigned flags = 0;
  std::atomic<CUresult> error{CUDA_SUCCESS};  ///< once set it stays: every later call answers it
  std::atomic<bool> dead{false};              ///< kernels that run long look at it
  StreamPtr legacy;
  std::map<std::thread::id, StreamPtr> per_thread;
  std::set<StreamPtr> streams;  ///< all of them, default streams included
  std::set<CapturePtr> captures;

  ContextId id() const { return reinterpret_cast<ContextId>(handle); }
  Actor copier() const { return {id(), device, false}; }
  Actor kernel() const { return {id(), device, true}; }
  void fail(CUresult result) {
    CUresult none = CUDA_SUCCESS;
    error.compare_exchange_strong(none, result);
  }
};

/// Which contexts exist, and which are current. Calls with the monitor locked say so.
class Contexts {
 public:
  Contexts(Monitor& monitor, Streams& streams, Memory& memory)
      : monitor_(monitor), streams_(streams), memory_(memory) {}

  ContextPtr create(int device, unsigned flags);
  ContextPtr retain_primary(int device);
  CUresult release_primary(int device);
  CUresult reset_primary(int device);
  void primary_state(int device, unsigned* flags, int* active);
  void set_primary_flags(int device, unsigned flags);
  /// Frees its plain memory, ends its streams, drops their work.
  CUresult destroy(CUcontext handle);

  ContextPtr find(CUcontext handle);
  /// The calling thread's; CUDA_ERROR_INVALID_CONTEXT, or CUDA_ERROR_CONTEXT_IS_DESTROYED.
  CUresult current(ContextPtr& out);
  std::uint64_t count();

  /// Drops what belongs to a context elsewhere (streams, events, modules); with the monitor locked.
  std::function<void(const ContextPtr&)> on_destroy_locked;

 private:
  struct Primary {
    CUcontext handle = nullptr;
    unsigned references = 0;
    unsigned flags = 0;
  };
  ContextPtr make_locked(CUcontext handle, int device, unsigned flags);
  void destroy_locked(std::unique_lock<std::mutex>& lock, const ContextPtr& context);

  Monitor& monitor_;
  Streams& streams_;
  Memory& memory_;
  Handles<CUcontext, Context> contexts_{0xc70000000010};
  std::array<Primary, most_devices> primary_{};
};

/// What the driver keeps for each thread of the host.
struct ThreadState {
  std::vector<CUcontext> contexts;  ///< the last one is current
  CUstreamCaptureMode capture_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
};
ThreadState& this_thread();

}  // namespace lowtide::sim

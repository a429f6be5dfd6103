// SPDX-License-Identifier: Apache-2.0
#include "backends/simulated/simulator.hpp"

#include <pthread.h>

#include <cstdlib>

#include "allocator/base/log.hpp"

namespace lowtide::sim {

Simulator& Simulator::instance() {
  static Immortal<Simulator> storage;
  static Simulator& simulator = storage.construct();
  return simulator;
}

Simulator::Simulator() {
  contexts.on_destroy_locked = [this](const ContextPtr& context) { drop_context_locked(context); };
  auto read = read_settings();
  if (!read) {
    complaint_ = read.error().message();
    return;
  }
  settings = std::move(*read);
  if (!faults.plan(settings.faults)) {
    complaint_ = "LOWTIDE_SIM_FAIL=" + settings.faults + ": wanted FUNCTION:N or FUNCTION:N+, separated by commas";
  }
}

CUresult Simulator::initialise() {
  const std::lock_guard lock(initialising_);
  if (state() != CUDA_ERROR_NOT_INITIALIZED) return state();
  if (complaint_.empty()) {
    if (const auto opened = capacity.open(settings.memory, settings.directory); !opened) {
      complaint_ = opened.error().message();
    }
  }
  if (!complaint_.empty()) {
    log(LogLevel::error, "simulated GPU: %s", complaint_.c_str());
    return CUDA_ERROR_INVALID_VALUE;
  }
  // As with the real driver, a forked child can never use it again; the child takes none of the locks it inherited.
  ::pthread_atfork(nullptr, nullptr, [] { instance().forked_.store(true, std::memory_order_release); });
  std::atexit([] {
    auto& simulator = instance();
    if (simulator.forked()) return;
    simulator.state_.store(CUDA_ERROR_DEINITIALIZED, std::memory_order_release);
    simulator.capacity.unlink_share();
  });
  state_.store(CUDA_SUCCESS, std::memory_order_release);
  return CUDA_SUCCESS;
}

CUresult Simulator::stream(Function function, const ContextPtr& context, CUstream handle, StreamPtr& out) {
  const std::lock_guard lock(monitor.mutex);
  if (context->dead) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  const bool means_thread = handle == nullptr && info(function).stream == DefaultStream::per_thread;
  if (means_thread || handle == CU_STREAM_PER_THREAD) {
    auto& mine = context->per_thread[std::this_thread::get_id()];
    if (!mine) {
      mine = std::make_shared<Stream>();
      mine->context = context;
      context->streams.insert(mine);
    }
    out = mine;
  } else if (handle == nullptr || handle == CU_STREAM_LEGACY) {
    out = context->legacy;
  } else {
    out = stream_handles.find(handle);
  }
  return out ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult Simulator::check_unsafe() {
  const std::lock_guard lock(monitor.mutex);
  return captures.check_unsafe();
}

void Simulator::drop_context_locked(const ContextPtr& context) {
  captures.drop_context(context);
  stream_handles.drop_if([&](const Stream& stream) { return stream.context == context; });
  events.drop_if([&](const Event& event) { return event.context == context; });
  kernel_functions.drop_if([&](const KernelFunction& function) { return function.module->context == context; });
  modules.drop_if([&](const Module& module) { return module.context == context; });
}

}  // namespace lowtide::sim

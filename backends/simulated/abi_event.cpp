// SPDX-License-Identifier: Apache-2.0
#include <chrono>

#include "backends/simulated/simulator.hpp"

using namespace lowtide::sim;

namespace {

std::int64_t nanoseconds_now() { return std::chrono::steady_clock::now().time_since_epoch().count(); }

CUresult record(Function function, CUevent handle, CUstream stream_handle) {
  return in_stream(function, stream_handle, [&](Simulator& simulator, const StreamPtr& stream) {
    const std::lock_guard lock(simulator.monitor.mutex);
    const auto event = simulator.events.find(handle);
    if (!event || event->context != stream->context) return CUDA_ERROR_INVALID_HANDLE;
    if (stream->capture) return Captures::record_event(stream, *event);
    auto time = std::make_shared<std::atomic<std::int64_t>>(0);
    const auto result = simulator.streams.submit_locked(stream, [time] {
      time->store(nanoseconds_now());
      return CUDA_SUCCESS;
    });
    if (result != CUDA_SUCCESS) return result;
    event->point = Streams::now_locked(stream);
    event->nanoseconds = std::move(time);
    event->capture.reset();
    event->captured_stream.reset();
    return CUDA_SUCCESS;
  });
}

CUresult wait_event(Function function, CUstream stream_handle, CUevent handle) {
  return in_stream(function, stream_handle, [&](Simulator& simulator, const StreamPtr& stream) {
    const std::lock_guard lock(simulator.monitor.mutex);
    const auto event = simulator.events.find(handle);
    if (!event) return CUDA_ERROR_INVALID_HANDLE;
    if (stream->capture || event->capture) return Captures::wait_event(stream, *event);
    return simulator.streams.wait_in_stream_locked(stream, event->point);
  });
}

CUresult elapsed(Function function, float* milliseconds, CUevent start_handle, CUevent end_handle) {
  return with_context(function, [&](Simulator& simulator, const ContextPtr&) {
    if (milliseconds == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const std::lock_guard lock(simulator.monitor.mutex);
    const auto start = simulator.events.find(start_handle);
    const auto end = simulator.events.find(end_handle);
    const bool valid = start && end && start->nanoseconds && end->nanoseconds;
    if (!valid || ((start->flags | end->flags) & CU_EVENT_DISABLE_TIMING) != 0) return CUDA_ERROR_INVALID_HANDLE;
    if (!start->point.reached() || !end->point.reached()) return CUDA_ERROR_NOT_READY;
    *milliseconds = static_cast<float>(end->nanoseconds->load() - start->nanoseconds->load()) * 1e-6F;
    return CUDA_SUCCESS;
  });
}

}  // namespace

extern "C" {

CUresult cuEventCreate(CUevent* out, unsigned int flags) {
  return with_context(Function::cuEventCreate, [&](Simulator& simulator, const ContextPtr& context) {
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    auto event = std::make_shared<Event>();
    event->context = context;
    event->flags = flags;
    const std::lock_guard lock(simulator.monitor.mutex);
    *out = simulator.events.add(std::move(event));
    return CUDA_SUCCESS;
  });
}

CUresult cuEventDestroy_v2(CUevent handle) {
  return with_driver(Function::cuEventDestroy_v2, [&](Simulator& simulator) {
    const std::lock_guard lock(simulator.monitor.mutex);
    return simulator.events.take(handle) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
  });
}

CUresult cuEventRecord(CUevent event, CUstream stream) { return record(Function::cuEventRecord, event, stream); }
CUresult cuEventRecord_ptsz(CUevent event, CUstream stream) {
  return record(Function::cuEventRecord_ptsz, event, stream);
}
CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned int) {
  return wait_event(Function::cuStreamWaitEvent, stream, event);
}
CUresult cuStreamWaitEvent_ptsz(CUstream stream, CUevent event, unsigned int) {
  return wait_event(Function::cuStreamWaitEvent_ptsz, stream, event);
}

CUresult cuEventQuery(CUevent handle) {
  return with_context_outside_capture(Function::cuEventQuery, [&](Simulator& simulator, const ContextPtr&) {
    const std::lock_guard lock(simulator.monitor.mutex);
    const auto event = simulator.events.find(handle);
    if (!event) return CUDA_ERROR_INVALID_HANDLE;
    if (event->capture) return CUDA_ERROR_CAPTURED_EVENT;
    return event->point.reached() ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
  });
}

CUresult cuEventSynchronize(CUevent handle) {
  return with_context(Function::cuEventSynchronize, [&](Simulator& simulator, const ContextPtr&) {
    Point point;
    {
      const std::lock_guard lock(simulator.monitor.mutex);
      const auto event = simulator.events.find(handle);
      if (!event) return CUDA_ERROR_INVALID_HANDLE;
      if (event->capture) return CUDA_ERROR_CAPTURED_EVENT;
      point = event->point;
    }
    return simulator.streams.wait(point);
  });
}

CUresult cuEventElapsedTime(float* milliseconds, CUevent start, CUevent end) {
  return elapsed(Function::cuEventElapsedTime, milliseconds, start, end);
}
CUresult cuEventElapsedTime_v2(float* milliseconds, CUevent start, CUevent end) {
  return elapsed(Function::cuEventElapsedTime_v2, milliseconds, start, end);
}

}  // extern "C"

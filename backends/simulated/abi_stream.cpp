// SPDX-License-Identifier: Apache-2.0
#include "backends/simulated/simulator.hpp"

using namespace lowtide::sim;

namespace {

CUresult create_stream(Function function, CUstream* out, unsigned flags) {
  return with_context(function, [&](Simulator& simulator, const ContextPtr& context) {
    if (out == nullptr || (flags & ~unsigned{CU_STREAM_NON_BLOCKING}) != 0) return CUDA_ERROR_INVALID_VALUE;
    auto stream = std::make_shared<Stream>();
    stream->context = context;
    stream->flags = flags;
    const std::lock_guard lock(simulator.monitor.mutex);
    if (context->dead) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    context->streams.insert(stream);
    *out = simulator.stream_handles.add(std::move(stream));
    return CUDA_SUCCESS;
  });
}

CUresult synchronise(Function function, CUstream handle) {
  return in_stream(function, handle, [](Simulator& simulator, const StreamPtr& stream) {
    Point point;
    {
      const std::lock_guard lock(simulator.monitor.mutex);
      if (const auto refused = Captures::check_wait(stream); refused != CUDA_SUCCESS) return refused;
      point = Streams::now_locked(stream);
    }
    // The default stream is behind all blocking ones, whether or not it has work of its own.
    if (stream->is_legacy) return simulator.streams.perform(stream, [] { return CUDA_SUCCESS; });
    return simulator.streams.wait(point);
  });
}

CUresult query(Function function, CUstream handle) {
  return in_stream(function, handle, [](Simulator& simulator, const StreamPtr& stream) {
    const std::lock_guard lock(simulator.monitor.mutex);
    if (const auto refused = Captures::check_wait(stream); refused != CUDA_SUCCESS) return refused;
    bool idle = stream->idle();
    if (stream->is_legacy) {
      for (const auto& other : stream->context->streams) idle &= !other->blocking() || other->idle();
    }
    return idle ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
  });
}

CUresult get_flags(Function function, CUstream handle, unsigned* flags) {
  return in_stream(function, handle, [&](Simulator&, const StreamPtr& stream) {
    if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *flags = stream->flags;
    return CUDA_SUCCESS;
  });
}

CUresult get_context(Function function, CUstream handle, CUcontext* context) {
  return in_stream(function, handle, [&](Simulator&, const StreamPtr& stream) {
    if (context == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *context = stream->context->handle;
    return CUDA_SUCCESS;
  });
}

CUresult launch_host(Function function, CUstream handle, CUhostFn callback, void* data) {
  return in_stream(function, handle, [&](Simulator& simulator, const StreamPtr& stream) {
    if (callback == nullptr) return CUDA_ERROR_INVALID_VALUE;
    return simulator.streams.submit(stream, [callback, data] {
      callback(data);
      return CUDA_SUCCESS;
    });
  });
}

}  // namespace

extern "C" {

CUresult cuStreamCreate(CUstream* out, unsigned int flags) {
  return create_stream(Function::cuStreamCreate, out, flags);
}
CUresult cuStreamCreateWithPriority(CUstream* out, unsigned int flags, int) {
  return create_stream(Function::cuStreamCreateWithPriority, out, flags);
}

CUresult cuStreamDestroy_v2(CUstream handle) {
  return with_driver(Function::cuStreamDestroy_v2, [&](Simulator& simulator) {
    const std::lock_guard lock(simulator.monitor.mutex);
    const auto stream = simulator.stream_handles.find(handle);
    if (!stream) return CUDA_ERROR_INVALID_HANDLE;
    if (stream->capture) {
      stream->capture->valid = false;
      return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    simulator.stream_handles.take(handle);
    simulator.streams.retire_locked(stream);
    return CUDA_SUCCESS;
  });
}

CUresult cuStreamSynchronize(CUstream stream) { return synchronise(Function::cuStreamSynchronize, stream); }
CUresult cuStreamSynchronize_ptsz(CUstream stream) { return synchronise(Function::cuStreamSynchronize_ptsz, stream); }
CUresult cuStreamQuery(CUstream stream) { return query(Function::cuStreamQuery, stream); }
CUresult cuStreamQuery_ptsz(CUstream stream) { return query(Function::cuStreamQuery_ptsz, stream); }

CUresult cuStreamGetFlags(CUstream stream, unsigned int* flags) {
  return get_flags(Function::cuStreamGetFlags, stream, flags);
}
CUresult cuStreamGetFlags_ptsz(CUstream stream, unsigned int* flags) {
  return get_flags(Function::cuStreamGetFlags_ptsz, stream, flags);
}
CUresult cuStreamGetCtx(CUstream stream, CUcontext* context) {
  return get_context(Function::cuStreamGetCtx, stream, context);
}
CUresult cuStreamGetCtx_ptsz(CUstream stream, CUcontext* context) {
  return get_context(Function::cuStreamGetCtx_ptsz, stream, context);
}

CUresult cuLaunchHostFunc(CUstream stream, CUhostFn callback, void* data) {
  return launch_host(Function::cuLaunchHostFunc, stream, callback, data);
}
CUresult cuLaunchHostFunc_ptsz(CUstream stream, CUhostFn callback, void* data) {
  return launch_host(Function::cuLaunchHostFunc_ptsz, stream, callback, data);
}

}  // extern "C"

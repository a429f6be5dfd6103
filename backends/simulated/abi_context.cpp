// SPDX-License-Identifier: Apache-2.0
#include "backends/simulated/simulator.hpp"

using namespace lowtide::sim;

namespace {

/// For functions of one device.
template <class Body>
CUresult with_device(Function function, CUdevice device, Body&& body) noexcept {
  return with_driver(function, [&](Simulator& simulator) {
    return simulator.has_device(device) ? static_cast<CUresult>(body(simulator)) : CUDA_ERROR_INVALID_DEVICE;
  });
}

CUresult create_context(Function function, CUcontext* out, unsigned flags, CUdevice device) {
  return with_device(function, device, [&](Simulator& simulator) {
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const auto context = simulator.contexts.create(device, flags);
    this_thread().contexts.push_back(context->handle);
    *out = context->handle;
    return CUDA_SUCCESS;
  });
}

}  // namespace

extern "C" {

CUresult cuDevicePrimaryCtxRetain(CUcontext* out, CUdevice device) {
  return with_device(Function::cuDevicePrimaryCtxRetain, device, [&](Simulator& simulator) {
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *out = simulator.contexts.retain_primary(device)->handle;
    return CUDA_SUCCESS;
  });
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  return with_device(Function::cuDevicePrimaryCtxRelease_v2, device,
                     [&](Simulator& simulator) { return simulator.contexts.release_primary(device); });
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice device) {
  return with_device(Function::cuDevicePrimaryCtxReset_v2, device,
                     [&](Simulator& simulator) { return simulator.contexts.reset_primary(device); });
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned int* flags, int* active) {
  return with_device(Function::cuDevicePrimaryCtxGetState, device, [&](Simulator& simulator) {
    if (flags == nullptr || active == nullptr) return CUDA_ERROR_INVALID_VALUE;
    simulator.contexts.primary_state(device, flags, active);
    return CUDA_SUCCESS;
  });
}

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned int flags) {
  return with_device(Function::cuDevicePrimaryCtxSetFlags_v2, device, [&](Simulator& simulator) {
    simulator.contexts.set_primary_flags(device, flags);
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxCreate_v2(CUcontext* out, unsigned int flags, CUdevice device) {
  return create_context(Function::cuCtxCreate_v2, out, flags, device);
}

CUresult cuCtxCreate_v3(CUcontext* out, CUexecAffinityParam*, int, unsigned int flags, CUdevice device) {
  return create_context(Function::cuCtxCreate_v3, out, flags, device);
}

CUresult cuCtxCreate_v4(CUcontext* out, CUctxCreateParams*, unsigned int flags, CUdevice device) {
  return create_context(Function::cuCtxCreate_v4, out, flags, device);
}

CUresult cuCtxDestroy_v2(CUcontext context) {
  return with_driver(Function::cuCtxDestroy_v2,
                     [&](Simulator& simulator) { return simulator.contexts.destroy(context); });
}

CUresult cuCtxGetCurrent(CUcontext* out) {
  return with_driver(Function::cuCtxGetCurrent, [&](Simulator&) {
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const auto& stack = this_thread().contexts;
    *out = stack.empty() ? nullptr : stack.back();
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxSetCurrent(CUcontext context) {
  return with_driver(Function::cuCtxSetCurrent, [&](Simulator& simulator) {
    auto& stack = this_thread().contexts;
    if (context != nullptr && !simulator.contexts.find(context)) return CUDA_ERROR_INVALID_CONTEXT;
    if (!stack.empty()) stack.pop_back();
    if (context != nullptr) stack.push_back(context);
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxPushCurrent_v2(CUcontext context) {
  return with_driver(Function::cuCtxPushCurrent_v2, [&](Simulator& simulator) {
    if (!simulator.contexts.find(context)) return CUDA_ERROR_INVALID_CONTEXT;
    this_thread().contexts.push_back(context);
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxPopCurrent_v2(CUcontext* out) {
  return with_driver(Function::cuCtxPopCurrent_v2, [&](Simulator&) {
    auto& stack = this_thread().contexts;
    if (stack.empty()) return CUDA_ERROR_INVALID_CONTEXT;
    if (out != nullptr) *out = stack.back();
    stack.pop_back();
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxGetDevice(CUdevice* device) {
  return with_driver(Function::cuCtxGetDevice, [&](Simulator& simulator) {
    if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
    ContextPtr context;
    if (const auto none = simulator.contexts.current(context); none != CUDA_SUCCESS) return none;
    *device = context->device;
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxGetDevice_v2(CUdevice* device, CUcontext handle) {
  return with_driver(Function::cuCtxGetDevice_v2, [&](Simulator& simulator) {
    if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
    ContextPtr context = simulator.contexts.find(handle);
    if (handle == nullptr) simulator.contexts.current(context);
    if (!context) return CUDA_ERROR_INVALID_CONTEXT;
    *device = context->device;
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxGetFlags(unsigned int* flags) {
  return with_context(Function::cuCtxGetFlags, [&](Simulator&, const ContextPtr& context) {
    if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *flags = context->flags;
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxGetApiVersion(CUcontext handle, unsigned int* version) {
  return with_driver(Function::cuCtxGetApiVersion, [&](Simulator& simulator) {
    ContextPtr context = simulator.contexts.find(handle);
    if (handle == nullptr) simulator.contexts.current(context);
    if (!context) return CUDA_ERROR_INVALID_CONTEXT;
    if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *version = 3020;
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxSynchronize(void) {
  return with_context(Function::cuCtxSynchronize, [](Simulator& simulator, const ContextPtr& context) {
    {
      const std::lock_guard lock(simulator.monitor.mutex);
      if (const auto capturing = Captures::check_synchronise(context); capturing != CUDA_SUCCESS) return capturing;
      if (const auto unsafe = simulator.captures.check_unsafe(); unsafe != CUDA_SUCCESS) return unsafe;
    }
    return simulator.streams.wait_all(context);
  });
}

CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned int flags) {
  return with_context(Function::cuCtxEnablePeerAccess, [&](Simulator& simulator, const ContextPtr& context) {
    const auto owner = simulator.contexts.find(peer);
    if (!owner) return CUDA_ERROR_INVALID_CONTEXT;
    if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
    if (owner->device == context->device) return CUDA_ERROR_INVALID_DEVICE;
    const bool enabled = simulator.memory.enable_peer(context->id(), owner->id());
    return enabled ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
  });
}

CUresult cuCtxDisablePeerAccess(CUcontext peer) {
  return with_context(Function::cuCtxDisablePeerAccess, [&](Simulator& simulator, const ContextPtr& context) {
    const auto owner = simulator.contexts.find(peer);
    if (!owner) return CUDA_ERROR_INVALID_CONTEXT;
    const bool disabled = simulator.memory.disable_peer(context->id(), owner->id());
    return disabled ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
  });
}

}  // extern "C"

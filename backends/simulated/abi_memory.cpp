// SPDX-License-Identifier: Apache-2.0
#include "backends/simulated/simulator.hpp"

using namespace lowtide::sim;

namespace {

/// What cuMemAllocPitch rounds a row up to.
constexpr std::size_t pitch_unit = 512;

CUresult allocate(Simulator& simulator, const ContextPtr& context, CUdeviceptr* out, std::size_t size, bool managed) {
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Address address = 0;
  const auto result = simulator.memory.allocate(&address, size, context->device, context->id(), managed);
  if (result == CUDA_SUCCESS) *out = address;
  return result;
}

CUresult allocate_in_stream(Function function, CUdeviceptr* out, std::size_t size, CUstream handle) {
  return in_stream(function, handle, [&](Simulator& simulator, const StreamPtr& stream) {
    {
      const std::lock_guard lock(simulator.monitor.mutex);
      // Allocations of a graph are not simulated.
      if (stream->capture) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    return allocate(simulator, stream->context, out, size, false);
  });
}

CUresult free_in_stream(Function function, CUdeviceptr address, CUstream handle) {
  return in_stream(function, handle, [&](Simulator& simulator, const StreamPtr& stream) {
    const auto block = simulator.memory.block_at(address);
    if (!block || block->global) return CUDA_ERROR_INVALID_VALUE;
    const std::lock_guard lock(simulator.monitor.mutex);
    if (stream->capture) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    return simulator.streams.submit_locked(stream, [&simulator, address] { return simulator.memory.free(address); });
  });
}

}  // namespace

extern "C" {

CUresult cuMemAlloc_v2(CUdeviceptr* out, size_t size) {
  return with_context_outside_capture(Function::cuMemAlloc_v2, [&](Simulator& simulator, const ContextPtr& context) {
    return allocate(simulator, context, out, size, false);
  });
}

CUresult cuMemAllocPitch_v2(CUdeviceptr* out, size_t* pitch, size_t width, size_t height, unsigned int element) {
  return with_context_outside_capture(Function::cuMemAllocPitch_v2,
                                      [&](Simulator& simulator, const ContextPtr& context) {
                                        const bool element_is_valid = element == 4 || element == 8 || element == 16;
                                        if (pitch == nullptr || !element_is_valid || width == 0 || height == 0)
                                          return CUDA_ERROR_INVALID_VALUE;
                                        if (width > simulator.capacity.total() || height > simulator.capacity.total())
                                          return CUDA_ERROR_OUT_OF_MEMORY;
                                        std::size_t size = 0;
                                        const auto row = round_up_to(width, pitch_unit);
                                        if (__builtin_mul_overflow(row, height, &size)) return CUDA_ERROR_OUT_OF_MEMORY;
                                        const auto result = allocate(simulator, context, out, size, false);
                                        if (result == CUDA_SUCCESS) *pitch = row;
                                        return result;
                                      });
}

CUresult cuMemAllocManaged(CUdeviceptr* out, size_t size, unsigned int flags) {
  return with_context_outside_capture(
      Function::cuMemAllocManaged, [&](Simulator& simulator, const ContextPtr& context) {
        const bool flags_are_valid = flags == CU_MEM_ATTACH_GLOBAL || flags == CU_MEM_ATTACH_HOST;
        return flags_are_valid ? allocate(simulator, context, out, size, true) : CUDA_ERROR_INVALID_VALUE;
      });
}

CUresult cuMemFree_v2(CUdeviceptr address) {
  return with_context_outside_capture(Function::cuMemFree_v2, [&](Simulator& simulator, const ContextPtr& context) {
    if (address == 0) return CUDA_SUCCESS;  // as an H200's driver answers
    const auto block = simulator.memory.block_at(address);
    if (!block || block->global) return CUDA_ERROR_INVALID_VALUE;
    // Work that is queued may still use it; that of another context, if it is that one's memory.
    const auto owner = simulator.contexts.find(reinterpret_cast<CUcontext>(block->context));
    if (const auto result = simulator.streams.wait_all(context); result != CUDA_SUCCESS) return result;
    if (owner && owner != context) simulator.streams.wait_all(owner);
    return simulator.memory.free(address);
  });
}

CUresult cuMemAllocAsync(CUdeviceptr* out, size_t size, CUstream stream) {
  return allocate_in_stream(Function::cuMemAllocAsync, out, size, stream);
}
CUresult cuMemAllocAsync_ptsz(CUdeviceptr* out, size_t size, CUstream stream) {
  return allocate_in_stream(Function::cuMemAllocAsync_ptsz, out, size, stream);
}
CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream) {
  return free_in_stream(Function::cuMemFreeAsync, address, stream);
}
CUresult cuMemFreeAsync_ptsz(CUdeviceptr address, CUstream stream) {
  return free_in_stream(Function::cuMemFreeAsync_ptsz, address, stream);
}

CUresult cuMemGetInfo_v2(size_t* free, size_t* total) {
  return with_context(Function::cuMemGetInfo_v2, [&](Simulator& simulator, const ContextPtr& context) {
    if (free == nullptr || total == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *free = simulator.capacity.free(context->device);
    *total = simulator.capacity.total();
    return CUDA_SUCCESS;
  });
}

static CUresult allocate_host(Function function, void** out, std::size_t size) {
  return with_context_outside_capture(function, [&](Simulator& simulator, const ContextPtr& context) {
    return simulator.memory.host_allocate(out, size, context->device, context->id());
  });
}

CUresult cuMemHostAlloc(void** out, size_t size, unsigned int) {
  return allocate_host(Function::cuMemHostAlloc, out, size);
}
CUresult cuMemAllocHost_v2(void** out, size_t size) { return allocate_host(Function::cuMemAllocHost_v2, out, size); }

CUresult cuMemFreeHost(void* memory) {
  return with_context_outside_capture(Function::cuMemFreeHost, [&](Simulator& simulator, const ContextPtr& context) {
    if (const auto result = simulator.streams.wait_all(context); result != CUDA_SUCCESS) return result;
    return simulator.memory.host_free(memory);
  });
}

CUresult cuMemHostRegister_v2(void* memory, size_t size, unsigned int) {
  return with_context_outside_capture(
      Function::cuMemHostRegister_v2, [&](Simulator& simulator, const ContextPtr& context) {
        return simulator.memory.host_register(memory, size, context->device, context->id());
      });
}

CUresult cuMemHostUnregister(void* memory) {
  return with_context_outside_capture(Function::cuMemHostUnregister, [&](Simulator& simulator, const ContextPtr&) {
    return simulator.memory.host_unregister(memory);
  });
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr* out, void* memory, unsigned int flags) {
  return with_context(Function::cuMemHostGetDevicePointer_v2, [&](Simulator& simulator, const ContextPtr&) {
    const auto address = reinterpret_cast<Address>(memory);
    const bool valid = out != nullptr && flags == 0 && simulator.memory.page_locked(address, 1);
    if (!valid) return CUDA_ERROR_INVALID_VALUE;
    *out = address;
    return CUDA_SUCCESS;
  });
}

}  // extern "C"

// SPDX-License-Identifier: Apache-2.0
#include "backends/simulated/copy_engine.hpp"
#include "backends/simulated/simulator.hpp"

using namespace lowtide::sim;

namespace {

Address address_of(const void* memory) { return reinterpret_cast<Address>(memory); }

/// One end of a copy before it is looked up: `device` demands memory of a device, otherwise the address decides.
Side side(CUdeviceptr address) { return {address, true}; }
Side side(const void* memory) { return {address_of(memory), false}; }

Copy row(Side to, Side from, std::size_t bytes) { return {to, from, bytes, 1, 0, 0}; }

/// A side whose address is memory of ours is checked when the copy runs; CUDA_ERROR_INVALID_VALUE if one has to be and
/// is not.
CUresult resolve(Memory& memory, Copy& copy) {
  const auto settle = [&](Side& end, std::uint64_t pitch) {
    const bool known = memory.known(end.address, (copy.height - 1) * pitch + copy.width);
    // As the driver: what begins in page-locked memory ends there, although the memory behind it may be so too.
    const bool torn = !known && memory.page_locked(end.address, 1);
    const bool valid = end.address != 0 && (known || !end.device) && !torn;
    end.device = known;
    return valid;
  };
  const bool valid = settle(copy.to, copy.to_pitch) && settle(copy.from, copy.from_pitch);
  return valid ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

bool is_empty(const Copy& copy) { return copy.width == 0 || copy.height == 0; }

Work work_of(Simulator& simulator, const ContextPtr& context, const Copy& copy) {
  return [&memory = simulator.memory, actor = context->copier(), copy] { return run_copy(memory, actor, copy); };
}

CUresult copy_now(Function function, Copy copy) {
  return in_stream(function, nullptr, [&](Simulator& simulator, const StreamPtr& stream) {
    if (const auto unsafe = simulator.check_unsafe(); unsafe != CUDA_SUCCESS) return unsafe;
    if (is_empty(copy)) return CUDA_SUCCESS;
    if (const auto bad = resolve(simulator.memory, copy); bad != CUDA_SUCCESS) return bad;
    return simulator.streams.perform(stream, work_of(simulator, stream->context, copy));
  });
}

CUresult copy_later(Function function, Copy copy, CUstream handle) {
  return in_stream(function, handle, [&](Simulator& simulator, const StreamPtr& stream) {
    if (is_empty(copy)) return CUDA_SUCCESS;
    if (const auto bad = resolve(simulator.memory, copy); bad != CUDA_SUCCESS) return bad;
    auto work = work_of(simulator, stream->context, copy);
    bool capturing = false;
    {
      const std::lock_guard lock(simulator.monitor.mutex);
      capturing = stream->capture != nullptr;
    }
    // The host may use pageable memory again as soon as the call returns.
    const bool pageable = !copy.to.device || !copy.from.device;
    if (pageable && !capturing) return simulator.streams.perform(stream, work);
    return simulator.streams.submit(stream, std::move(work));
  });
}

bool make_side(Side& out, CUmemorytype type, const void* host, CUdeviceptr device, std::size_t offset) {
  switch (type) {
    case CU_MEMORYTYPE_HOST: out = {address_of(host) + offset, false}; return host != nullptr;
    case CU_MEMORYTYPE_DEVICE: out = {device + offset, true}; return true;
    case CU_MEMORYTYPE_UNIFIED: out = {device + offset, false}; return device != 0;
    default: return false;
  }
}

/// False for what is not a copy of rows between plain memory.
bool make_rows(const CUDA_MEMCPY2D* parameters, Copy& copy) {
  if (parameters == nullptr) return false;
  const auto& p = *parameters;
  copy.width = p.WidthInBytes;
  copy.height = p.Height;
  copy.to_pitch = p.dstPitch != 0 ? p.dstPitch : p.WidthInBytes + p.dstXInBytes;
  copy.from_pitch = p.srcPitch != 0 ? p.srcPitch : p.WidthInBytes + p.srcXInBytes;
  const bool fits =
      copy.to_pitch >= p.WidthInBytes + p.dstXInBytes && copy.from_pitch >= p.WidthInBytes + p.srcXInBytes;
  const auto to_offset = p.dstY * copy.to_pitch + p.dstXInBytes;
  const auto from_offset = p.srcY * copy.from_pitch + p.srcXInBytes;
  return fits && make_side(copy.to, p.dstMemoryType, p.dstHost, p.dstDevice, to_offset) &&
         make_side(copy.from, p.srcMemoryType, p.srcHost, p.srcDevice, from_offset);
}

CUresult copy_rows_now(Function function, const CUDA_MEMCPY2D* parameters) {
  Copy copy;
  if (make_rows(parameters, copy)) return copy_now(function, copy);
  return with_context(function, [](Simulator&, const ContextPtr&) { return CUDA_ERROR_INVALID_VALUE; });
}

CUresult copy_rows_later(Function function, const CUDA_MEMCPY2D* parameters, CUstream stream) {
  Copy copy;
  if (make_rows(parameters, copy)) return copy_later(function, copy, stream);
  return with_context(function, [](Simulator&, const ContextPtr&) { return CUDA_ERROR_INVALID_VALUE; });
}

/// For cuMemcpy, whose addresses may be anybody's.
Side any(CUdeviceptr address) { return {address, false}; }

}  // namespace

extern "C" {

CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t n) {
  return copy_now(Function::cuMemcpy, row(any(to), any(from), n));
}
CUresult cuMemcpy_ptds(CUdeviceptr to, CUdeviceptr from, size_t n) {
  return copy_now(Function::cuMemcpy_ptds, row(any(to), any(from), n));
}
CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t n, CUstream stream) {
  return copy_later(Function::cuMemcpyAsync, row(any(to), any(from), n), stream);
}
CUresult cuMemcpyAsync_ptsz(CUdeviceptr to, CUdeviceptr from, size_t n, CUstream stream) {
  return copy_later(Function::cuMemcpyAsync_ptsz, row(any(to), any(from), n), stream);
}

CUresult cuMemcpyPeer(CUdeviceptr to, CUcontext, CUdeviceptr from, CUcontext, size_t n) {
  return copy_now(Function::cuMemcpyPeer, row(side(to), side(from), n));
}
CUresult cuMemcpyPeer_ptds(CUdeviceptr to, CUcontext, CUdeviceptr from, CUcontext, size_t n) {
  return copy_now(Function::cuMemcpyPeer_ptds, row(side(to), side(from), n));
}
CUresult cuMemcpyPeerAsync(CUdeviceptr to, CUcontext, CUdeviceptr from, CUcontext, size_t n, CUstream stream) {
  return copy_later(Function::cuMemcpyPeerAsync, row(side(to), side(from), n), stream);
}
CUresult cuMemcpyPeerAsync_ptsz(CUdeviceptr to, CUcontext, CUdeviceptr from, CUcontext, size_t n, CUstream stream) {
  return copy_later(Function::cuMemcpyPeerAsync_ptsz, row(side(to), side(from), n), stream);
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void* from, size_t n) {
  return copy_now(Function::cuMemcpyHtoD_v2, row(side(to), side(from), n));
}
CUresult cuMemcpyHtoD_v2_ptds(CUdeviceptr to, const void* from, size_t n) {
  return copy_now(Function::cuMemcpyHtoD_v2_ptds, row(side(to), side(from), n));
}
CUresult cuMemcpyDtoH_v2(void* to, CUdeviceptr from, size_t n) {
  return copy_now(Function::cuMemcpyDtoH_v2, row(side(to), side(from), n));
}
CUresult cuMemcpyDtoH_v2_ptds(void* to, CUdeviceptr from, size_t n) {
  return copy_now(Function::cuMemcpyDtoH_v2_ptds, row(side(to), side(from), n));
}
CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t n) {
  return copy_now(Function::cuMemcpyDtoD_v2, row(side(to), side(from), n));
}
CUresult cuMemcpyDtoD_v2_ptds(CUdeviceptr to, CUdeviceptr from, size_t n) {
  return copy_now(Function::cuMemcpyDtoD_v2_ptds, row(side(to), side(from), n));
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, size_t n, CUstream stream) {
  return copy_later(Function::cuMemcpyHtoDAsync_v2, row(side(to), side(from), n), stream);
}
CUresult cuMemcpyHtoDAsync_v2_ptsz(CUdeviceptr to, const void* from, size_t n, CUstream stream) {
  return copy_later(Function::cuMemcpyHtoDAsync_v2_ptsz, row(side(to), side(from), n), stream);
}
CUresult cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, size_t n, CUstream stream) {
  return copy_later(Function::cuMemcpyDtoHAsync_v2, row(side(to), side(from), n), stream);
}
CUresult cuMemcpyDtoHAsync_v2_ptsz(void* to, CUdeviceptr from, size_t n, CUstream stream) {
  return copy_later(Function::cuMemcpyDtoHAsync_v2_ptsz, row(side(to), side(from), n), stream);
}
CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t n, CUstream stream) {
  return copy_later(Function::cuMemcpyDtoDAsync_v2, row(side(to), side(from), n), stream);
}
CUresult cuMemcpyDtoDAsync_v2_ptsz(CUdeviceptr to, CUdeviceptr from, size_t n, CUstream stream) {
  return copy_later(Function::cuMemcpyDtoDAsync_v2_ptsz, row(side(to), side(from), n), stream);
}

CUresult cuMemcpy2D_v2(const CUDA_MEMCPY2D* copy) { return copy_rows_now(Function::cuMemcpy2D_v2, copy); }
CUresult cuMemcpy2D_v2_ptds(const CUDA_MEMCPY2D* copy) { return copy_rows_now(Function::cuMemcpy2D_v2_ptds, copy); }
CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D* copy, CUstream stream) {
  return copy_rows_later(Function::cuMemcpy2DAsync_v2, copy, stream);
}
CUresult cuMemcpy2DAsync_v2_ptsz(const CUDA_MEMCPY2D* copy, CUstream stream) {
  return copy_rows_later(Function::cuMemcpy2DAsync_v2_ptsz, copy, stream);
}

}  // extern "C"

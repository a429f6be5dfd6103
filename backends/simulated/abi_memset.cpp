// SPDX-License-Identifier: Apache-2.0
#include "backends/simulated/copy_engine.hpp"
#include "backends/simulated/simulator.hpp"

using namespace lowtide::sim;

namespace {

CUresult check(Memory& memory, const Fill& fill) {
  const bool aligned = fill.to % fill.element == 0;
  const bool known = memory.known(fill.to, fill.count * fill.element);
  return aligned && known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

Work work_of(Simulator& simulator, const ContextPtr& context, const Fill& fill) {
  return [&memory = simulator.memory, actor = context->copier(), fill] { return run_fill(memory, actor, fill); };
}

CUresult fill_now(Function function, const Fill& fill) {
  return in_stream(function, nullptr, [&](Simulator& simulator, const StreamPtr& stream) {
    if (const auto unsafe = simulator.check_unsafe(); unsafe != CUDA_SUCCESS) return unsafe;
    if (fill.count == 0) return CUDA_SUCCESS;
    if (const auto bad = check(simulator.memory, fill); bad != CUDA_SUCCESS) return bad;
    return simulator.streams.perform(stream, work_of(simulator, stream->context, fill));
  });
}

CUresult fill_later(Function function, const Fill& fill, CUstream handle) {
  return in_stream(function, handle, [&](Simulator& simulator, const StreamPtr& stream) {
    if (fill.count == 0) return CUDA_SUCCESS;
    if (const auto bad = check(simulator.memory, fill); bad != CUDA_SUCCESS) return bad;
    return simulator.streams.submit(stream, work_of(simulator, stream->context, fill));
  });
}

}  // namespace

extern "C" {

CUresult cuMemsetD8_v2(CUdeviceptr to, unsigned char value, size_t n) {
  return fill_now(Function::cuMemsetD8_v2, {to, n, 1, value});
}
CUresult cuMemsetD8_v2_ptds(CUdeviceptr to, unsigned char value, size_t n) {
  return fill_now(Function::cuMemsetD8_v2_ptds, {to, n, 1, value});
}
CUresult cuMemsetD16_v2(CUdeviceptr to, unsigned short value, size_t n) {
  return fill_now(Function::cuMemsetD16_v2, {to, n, 2, value});
}
CUresult cuMemsetD16_v2_ptds(CUdeviceptr to, unsigned short value, size_t n) {
  return fill_now(Function::cuMemsetD16_v2_ptds, {to, n, 2, value});
}
CUresult cuMemsetD32_v2(CUdeviceptr to, unsigned int value, size_t n) {
  return fill_now(Function::cuMemsetD32_v2, {to, n, 4, value});
}
CUresult cuMemsetD32_v2_ptds(CUdeviceptr to, unsigned int value, size_t n) {
  return fill_now(Function::cuMemsetD32_v2_ptds, {to, n, 4, value});
}

CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t n, CUstream stream) {
  return fill_later(Function::cuMemsetD8Async, {to, n, 1, value}, stream);
}
CUresult cuMemsetD8Async_ptsz(CUdeviceptr to, unsigned char value, size_t n, CUstream stream) {
  return fill_later(Function::cuMemsetD8Async_ptsz, {to, n, 1, value}, stream);
}
CUresult cuMemsetD16Async(CUdeviceptr to, unsigned short value, size_t n, CUstream stream) {
  return fill_later(Function::cuMemsetD16Async, {to, n, 2, value}, stream);
}
CUresult cuMemsetD16Async_ptsz(CUdeviceptr to, unsigned short value, size_t n, CUstream stream) {
  return fill_later(Function::cuMemsetD16Async_ptsz, {to, n, 2, value}, stream);
}
CUresult cuMemsetD32Async(CUdeviceptr to, unsigned int value, size_t n, CUstream stream) {
  return fill_later(Function::cuMemsetD32Async, {to, n, 4, value}, stream);
}
CUresult cuMemsetD32Async_ptsz(CUdeviceptr to, unsigned int value, size_t n, CUstream stream) {
  return fill_later(Function::cuMemsetD32Async_ptsz, {to, n, 4, value}, stream);
}

}  // extern "C"

// SPDX-License-Identifier: Apache-2.0
#include "backends/simulated/hip/runtime.hpp"

using namespace lowtide::sim::hip;

namespace {

CUresult copy(const Driver& driver, void* to, const void* from, std::size_t size, hipMemcpyKind kind) {
  switch (kind) {
    case hipMemcpyHostToDevice: return driver.cuMemcpyHtoD_v2(address_of(to), from, size);
    case hipMemcpyDeviceToHost: return driver.cuMemcpyDtoH_v2(to, address_of(from), size);
    case hipMemcpyDeviceToDevice: return driver.cuMemcpyDtoD_v2(address_of(to), address_of(from), size);
    default: return driver.cuMemcpy(address_of(to), address_of(from), size);
  }
}

CUresult copy(const Driver& driver, void* to, const void* from, std::size_t size, hipMemcpyKind kind, CUstream stream) {
  switch (kind) {
    case hipMemcpyHostToDevice: return driver.cuMemcpyHtoDAsync_v2(address_of(to), from, size, stream);
    case hipMemcpyDeviceToHost: return driver.cuMemcpyDtoHAsync_v2(to, address_of(from), size, stream);
    case hipMemcpyDeviceToDevice: return driver.cuMemcpyDtoDAsync_v2(address_of(to), address_of(from), size, stream);
    default: return driver.cuMemcpyAsync(address_of(to), address_of(from), size, stream);
  }
}

/// Both sides by address alone, whatever the kind: the driver knows whose each is.
CUDA_MEMCPY2D rows(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch, std::size_t width,
                   std::size_t height) {
  CUDA_MEMCPY2D copied{};
  copied.srcMemoryType = CU_MEMORYTYPE_UNIFIED;
  copied.srcDevice = address_of(from);
  copied.srcPitch = from_pitch;
  copied.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
  copied.dstDevice = address_of(to);
  copied.dstPitch = to_pitch;
  copied.WidthInBytes = width;
  copied.Height = height;
  return copied;
}

/// Runs `call(driver, context of `to_device`, context of `from_device`)`.
template <class Call>
hipError_t between(int to_device, int from_device, Call call) {
  return with_device([&](const Driver& driver) {
    CUcontext to = nullptr;
    CUcontext from = nullptr;
    auto& runtime = Runtime::instance();
    if (const auto error = runtime.context_of(to_device, to); error != hipSuccess) return error;
    if (const auto error = runtime.context_of(from_device, from); error != hipSuccess) return error;
    return as_hip(call(driver, to, from));
  });
}

}  // namespace

extern "C" {

hipError_t hipMemcpy(void* to, const void* from, size_t size, hipMemcpyKind kind) {
  return with_device([&](const Driver& driver) { return copy(driver, to, from, size, kind); });
}

hipError_t hipMemcpyAsync(void* to, const void* from, size_t size, hipMemcpyKind kind, hipStream_t stream) {
  return with_device([&](const Driver& driver) { return copy(driver, to, from, size, kind, native(stream)); });
}

hipError_t hipMemcpyWithStream(void* to, const void* from, size_t size, hipMemcpyKind kind, hipStream_t stream) {
  return with_device([&](const Driver& driver) {
    const auto result = copy(driver, to, from, size, kind, native(stream));
    return result != CUDA_SUCCESS ? result : driver.cuStreamSynchronize(native(stream));
  });
}

hipError_t hipMemcpyHtoD(hipDeviceptr_t to, void* from, size_t size) {
  return forward(&Driver::cuMemcpyHtoD_v2, address_of(to), from, size);
}

hipError_t hipMemcpyDtoH(void* to, hipDeviceptr_t from, size_t size) {
  return forward(&Driver::cuMemcpyDtoH_v2, to, address_of(from), size);
}

hipError_t hipMemcpyDtoD(hipDeviceptr_t to, hipDeviceptr_t from, size_t size) {
  return forward(&Driver::cuMemcpyDtoD_v2, address_of(to), address_of(from), size);
}

hipError_t hipMemcpyHtoDAsync(hipDeviceptr_t to, void* from, size_t size, hipStream_t stream) {
  return forward(&Driver::cuMemcpyHtoDAsync_v2, address_of(to), from, size, native(stream));
}

hipError_t hipMemcpyDtoHAsync(void* to, hipDeviceptr_t from, size_t size, hipStream_t stream) {
  return forward(&Driver::cuMemcpyDtoHAsync_v2, to, address_of(from), size, native(stream));
}

hipError_t hipMemcpyDtoDAsync(hipDeviceptr_t to, hipDeviceptr_t from, size_t size, hipStream_t stream) {
  return forward(&Driver::cuMemcpyDtoDAsync_v2, address_of(to), address_of(from), size, native(stream));
}

hipError_t hipMemcpyPeer(void* to, int to_device, const void* from, int from_device, size_t size) {
  return between(to_device, from_device, [&](const Driver& driver, CUcontext there, CUcontext here) {
    return driver.cuMemcpyPeer(address_of(to), there, address_of(from), here, size);
  });
}

hipError_t hipMemcpyPeerAsync(void* to, int to_device, const void* from, int from_device, size_t size,
                              hipStream_t stream) {
  return between(to_device, from_device, [&](const Driver& driver, CUcontext there, CUcontext here) {
    return driver.cuMemcpyPeerAsync(address_of(to), there, address_of(from), here, size, native(stream));
  });
}

hipError_t hipMemcpy2D(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t height,
                       hipMemcpyKind) {
  const auto copied = rows(to, to_pitch, from, from_pitch, width, height);
  return forward(&Driver::cuMemcpy2D_v2, &copied);
}

hipError_t hipMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t height,
                            hipMemcpyKind, hipStream_t stream) {
  const auto copied = rows(to, to_pitch, from, from_pitch, width, height);
  return forward(&Driver::cuMemcpy2DAsync_v2, &copied, native(stream));
}

hipError_t hipMemset(void* to, int value, size_t size) {
  return forward(&Driver::cuMemsetD8_v2, address_of(to), static_cast<unsigned char>(value), size);
}

hipError_t hipMemsetAsync(void* to, int value, size_t size, hipStream_t stream) {
  return forward(&Driver::cuMemsetD8Async, address_of(to), static_cast<unsigned char>(value), size, native(stream));
}

hipError_t hipMemsetD8(hipDeviceptr_t to, unsigned char value, size_t count) {
  return forward(&Driver::cuMemsetD8_v2, address_of(to), value, count);
}

hipError_t hipMemsetD8Async(hipDeviceptr_t to, unsigned char value, size_t count, hipStream_t stream) {
  return forward(&Driver::cuMemsetD8Async, address_of(to), value, count, native(stream));
}

hipError_t hipMemsetD16(hipDeviceptr_t to, unsigned short value, size_t count) {
  return forward(&Driver::cuMemsetD16_v2, address_of(to), value, count);
}

hipError_t hipMemsetD16Async(hipDeviceptr_t to, unsigned short value, size_t count, hipStream_t stream) {
  return forward(&Driver::cuMemsetD16Async, address_of(to), value, count, native(stream));
}

hipError_t hipMemsetD32(hipDeviceptr_t to, int value, size_t count) {
  return forward(&Driver::cuMemsetD32_v2, address_of(to), static_cast<unsigned>(value), count);
}

hipError_t hipMemsetD32Async(hipDeviceptr_t to, int value, size_t count, hipStream_t stream) {
  return forward(&Driver::cuMemsetD32Async, address_of(to), static_cast<unsigned>(value), count, native(stream));
}

}  // extern "C"

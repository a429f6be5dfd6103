// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda.h>
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <vector>

#include "backends/simulated/sim_control.h"
#include "tests/catch.hpp"

// What the tests of the simulated GPU share. They link its libcuda.so.1 and speak plain CUDA.

constexpr std::size_t MiB = std::size_t{1} << 20;

/// A context of its own, current on the calling thread: an error that sticks to it ends with the test.
class TestContext {
 public:
  explicit TestContext(int device = 0) {
    REQUIRE(cuInit(0) == CUDA_SUCCESS);
    REQUIRE(cuCtxCreate(&context_, nullptr, 0, device) == CUDA_SUCCESS);
  }
  TestContext(const TestContext&) = delete;
  TestContext& operator=(const TestContext&) = delete;
  ~TestContext() { cuCtxDestroy(context_); }
  CUcontext get() const { return context_; }

 private:
  CUcontext context_ = nullptr;
};

inline CUmemAllocationProp device_memory(int device = 0) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, {device}};
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  return properties;
}

inline CUresult allow(CUdeviceptr address, std::size_t size, int device = 0,
                      CUmemAccess_flags flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE) {
  CUmemAccessDesc access{};
  access.location = {CU_MEM_LOCATION_TYPE_DEVICE, {device}};
  access.flags = flags;
  return cuMemSetAccess(address, size, &access, 1);
}

/// Address space with memory behind it: what a test maps, unmaps and maps again.
struct Virtual {
  explicit Virtual(std::size_t bytes, int device = 0) : size(bytes) {
    const auto properties = device_memory(device);
    REQUIRE(cuMemAddressReserve(&address, size, 0, 0, 0) == CUDA_SUCCESS);
    REQUIRE(cuMemCreate(&handle, size, &properties, 0) == CUDA_SUCCESS);
  }
  Virtual(const Virtual&) = delete;
  Virtual& operator=(const Virtual&) = delete;
  ~Virtual() {
    cuMemUnmap(address, size);
    if (handle != 0) cuMemRelease(handle);
    cuMemAddressFree(address, size);
  }
  void map(int device = 0) {
    REQUIRE(cuMemMap(address, size, 0, handle, 0) == CUDA_SUCCESS);
    REQUIRE(allow(address, size, device) == CUDA_SUCCESS);
  }
  void unmap() { REQUIRE(cuMemUnmap(address, size) == CUDA_SUCCESS); }

  std::size_t size;
  CUdeviceptr address = 0;
  CUmemGenericAllocationHandle handle = 0;
};

/// True if the host may read there. The kernel looks for us, so that a fault does not end the test.
inline bool readable(CUdeviceptr address) {
  int ends[2];
  REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
  const auto written = ::write(ends[1], reinterpret_cast<const void*>(address), 1);
  const int error = errno;
  ::close(ends[0]);
  ::close(ends[1]);
  if (written != 1) REQUIRE(error == EFAULT);
  return written == 1;
}

inline std::vector<unsigned char> bytes_at(CUdeviceptr address, std::size_t size) {
  std::vector<unsigned char> bytes(size);
  REQUIRE(cuMemcpyDtoH(bytes.data(), address, size) == CUDA_SUCCESS);
  return bytes;
}

inline bool all_equal(CUdeviceptr address, std::size_t size, unsigned char value) {
  return bytes_at(address, size) == std::vector<unsigned char>(size, value);
}

inline lowtide_sim_live live() {
  lowtide_sim_live now{};
  now.struct_size = sizeof now;
  lowtide_sim_counts(&now);
  return now;
}

inline std::size_t free_memory() {
  std::size_t free = 0;
  std::size_t total = 0;
  REQUIRE(cuMemGetInfo(&free, &total) == CUDA_SUCCESS);
  return free;
}

/// A kernel of the simulated GPU's own.
class TestKernel {
 public:
  explicit TestKernel(const char* name) {
    REQUIRE(cuModuleLoadData(&module_, LOWTIDE_SIM_IMAGE) == CUDA_SUCCESS);
    REQUIRE(cuModuleGetFunction(&function_, module_, name) == CUDA_SUCCESS);
  }
  template <class... Arguments>
  CUresult launch(CUstream stream, Arguments... arguments) {
    std::uint64_t values[] = {static_cast<std::uint64_t>(arguments)...};
    void* parameters[sizeof...(arguments)];
    for (std::size_t i = 0; i < sizeof...(arguments); ++i) parameters[i] = &values[i];
    return cuLaunchKernel(function_, 1, 1, 1, 1, 1, 1, 0, stream, parameters, nullptr);
  }

 private:
  CUmodule module_ = nullptr;
  CUfunction function_ = nullptr;
};

/// A kernel that runs in `stream` until it is let go.
class RunningKernel {
 public:
  explicit RunningKernel(CUstream stream) : kernel_("sim_spin_until") {
    REQUIRE(kernel_.launch(stream, reinterpret_cast<std::uint64_t>(&flag_)) == CUDA_SUCCESS);
  }
  RunningKernel(const RunningKernel&) = delete;
  RunningKernel& operator=(const RunningKernel&) = delete;
  ~RunningKernel() { let_go(); }
  void let_go() { __atomic_store_n(&flag_, 1, __ATOMIC_RELEASE); }

 private:
  TestKernel kernel_;
  int flag_ = 0;
};

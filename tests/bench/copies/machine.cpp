// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/copies/machine.hpp"

#include <dlfcn.h>
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "shim/loader/real_loader.hpp"
#include "tests/gpu/hazards/driver.hpp"

namespace copies {
namespace {

using hazards::driver;
using hazards::must;
using hazards::require;

Extra load() {
  const lowtide::RealLoader loader = lowtide::find_real_loader();
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(loader.dlsym(driver().library, name));
    require(function != nullptr, std::string(name) + " is missing");
  };
  Extra found{};
  find(found.host_alloc, "cuMemHostAlloc");
  find(found.host_free, "cuMemFreeHost");
  find(found.register_host, "cuMemHostRegister_v2");
  find(found.unregister_host, "cuMemHostUnregister");
  find(found.to_device_async, "cuMemcpyHtoDAsync_v2");
  find(found.to_host_async, "cuMemcpyDtoHAsync_v2");
  find(found.attribute, "cuDeviceGetAttribute");
  find(found.reserve, "cuMemAddressReserve");
  find(found.create, "cuMemCreate");
  find(found.release, "cuMemRelease");
  find(found.map, "cuMemMap");
  find(found.unmap, "cuMemUnmap");
  find(found.set_access, "cuMemSetAccess");
  if (void* library = dlopen("liblowtide.so", RTLD_NOW | RTLD_NOLOAD); library != nullptr)
    found.set = reinterpret_cast<decltype(found.set)>(dlsym(library, "lowtide_set"));
  return found;
}

/// The number behind `key` in a file of lines such as "MemAvailable:  123 kB", in bytes; 0 if it is not there.
std::int64_t kilobytes(const char* path, const char* key) {
  std::FILE* file = std::fopen(path, "re");
  if (file == nullptr) return 0;
  char line[256];
  long long found = 0;
  while (std::fgets(line, sizeof line, file) != nullptr) {
    if (std::strncmp(line, key, std::strlen(key)) == 0) {
      found = std::strtoll(line + std::strlen(key), nullptr, 10);
      break;
    }
  }
  std::fclose(file);
  return found * 1024;
}

std::int64_t own_bytes() {
  return kilobytes("/proc/self/status", "RssAnon:") + kilobytes("/proc/self/status", "RssShmem:");
}

template <class Copy>
double rate(std::size_t bytes, CUstream stream, Copy copy) {
  std::vector<double> rates;
  for (int i = -1; i < 5; ++i) {
    const auto start = now_ns();
    must(copy(), "a copy of the link");
    must(driver().synchronize_stream(stream), "cuStreamSynchronize");
    const auto time = static_cast<double>(now_ns() - start) * 1e-9;
    if (i >= 0) rates.push_back(static_cast<double>(bytes) / time);
  }
  std::sort(rates.begin(), rates.end());
  return rates[rates.size() / 2];
}

}  // namespace

const Extra& extra() {
  static const Extra instance = load();
  return instance;
}

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

Link measure_link(std::size_t bytes) {
  void* host = nullptr;
  CUdeviceptr device = 0;
  CUstream stream = nullptr;
  must(extra().host_alloc(&host, bytes, CU_MEMHOSTALLOC_PORTABLE), "cuMemHostAlloc");
  must(driver().allocate(&device, bytes), "cuMemAlloc");
  must(driver().create_stream(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  const double to_host = rate(bytes, stream, [&] { return extra().to_host_async(host, device, bytes, stream); });
  const double to_device = rate(bytes, stream, [&] { return extra().to_device_async(device, host, bytes, stream); });
  must(driver().destroy_stream(stream), "cuStreamDestroy");
  must(driver().free(device), "cuMemFree");
  must(extra().host_free(host), "cuMemFreeHost");
  return {to_host, to_device};
}

double warm_host(std::size_t bytes) {
  const auto start = now_ns();
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  require(memory != MAP_FAILED, "no host memory to warm up");
  (void)madvise(memory, bytes, MADV_HUGEPAGE);
  const std::size_t count = std::max(1U, std::thread::hardware_concurrency());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < count; ++i) {
    threads.emplace_back([=] {
      auto* const bytes_of = static_cast<volatile unsigned char*>(memory);
      for (std::size_t at = bytes / count * i; at < bytes / count * (i + 1); at += 4096) bytes_of[at] = 1;
    });
  }
  for (auto& thread : threads) thread.join();
  munmap(memory, bytes);
  return static_cast<double>(now_ns() - start) * 1e-9;
}

std::int64_t available_bytes() { return kilobytes("/proc/meminfo", "MemAvailable:"); }

HostWatch::HostWatch() {
  seen_ = {own_bytes(), 0, available_bytes(), 0};
  seen_.own_peak = seen_.own_before;
  seen_.available_least = seen_.available_before;
  thread_ = std::thread([this] {
    while (!stop_) {
      look();
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  });
}

HostWatch::~HostWatch() {
  stop_ = true;
  if (thread_.joinable()) thread_.join();
}

void HostWatch::look() {
  seen_.own_peak = std::max(seen_.own_peak, own_bytes());
  seen_.available_least = std::min(seen_.available_least, available_bytes());
}

HostWatch::Seen HostWatch::end() {
  stop_ = true;
  thread_.join();
  look();
  return seen_;
}

BareBlocks::BareBlocks(std::size_t count, std::size_t bytes) : bytes_(bytes), addresses_(count), handles_(count) {
  properties_.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties_.location = {};
  properties_.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties_.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  int rdma = 0;
  (void)extra().attribute(&rdma, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, 0);
  properties_.allocFlags.gpuDirectRDMACapable = rdma != 0 ? 1 : 0;
  // As Lowtide's probe does: what the device does not grant is not asked for.
  CUmemGenericAllocationHandle tried = 0;
  if (extra().create(&tried, bytes, &properties_, 0) != CUDA_SUCCESS) {
    properties_.allocFlags.gpuDirectRDMACapable = 0;
    must(extra().create(&tried, bytes, &properties_, 0), "cuMemCreate");
  }
  must(extra().release(tried), "cuMemRelease");
  for (auto& address : addresses_) must(extra().reserve(&address, bytes, 0, 0, 0), "cuMemAddressReserve");
  resume();
}

void BareBlocks::resume() {
  CUmemAccessDesc access{};
  access.location = properties_.location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  for (std::size_t i = 0; i < handles_.size(); ++i) {
    must(extra().create(&handles_[i], bytes_, &properties_, 0), "cuMemCreate");
    must(extra().map(addresses_[i], bytes_, 0, handles_[i], 0), "cuMemMap");
    must(extra().set_access(addresses_[i], bytes_, &access, 1), "cuMemSetAccess");
  }
}

void BareBlocks::pause() {
  for (std::size_t i = 0; i < handles_.size(); ++i) {
    must(extra().unmap(addresses_[i], bytes_), "cuMemUnmap");
    must(extra().release(handles_[i]), "cuMemRelease");
  }
}

}  // namespace copies

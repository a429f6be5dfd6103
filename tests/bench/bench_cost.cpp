// SPDX-License-Identifier: Apache-2.0
// What a driver call costs. Run bare and under the preload by run_cost.py, which compares; prints a JSON line per
// figure:
//   {"what": NAME, "ns": MEDIAN OVER BATCHES, "batches": N, "calls": CALLS A BATCH}
// Tagged figures are there only under the preload, since without it no allocation has a tag.
#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>

#include "tests/gpu/hazards/driver.hpp"

namespace {

using hazards::driver;
using hazards::must;

constexpr const char* kEmptyKernel =
    ".version 6.4\n.target sm_70\n.address_size 64\n.visible .entry empty()\n{\n  ret;\n}\n";
constexpr std::size_t kMib = std::size_t{1} << 20U;

// The median over `batches` of the mean time of a call; `settle` runs between batches, outside the time.
void measure(
    const std::string& what, int batches, int calls, const std::function<void()>& call,
    const std::function<void()>& settle = [] {}) {
  std::vector<double> means;
  for (int batch = -batches / 10 - 1; batch < batches; ++batch) {  // the first tenth warms up
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < calls; ++i) call();
    const std::chrono::duration<double, std::nano> time = std::chrono::steady_clock::now() - start;
    settle();
    if (batch >= 0) means.push_back(time.count() / calls);
  }
  std::nth_element(means.begin(), means.begin() + batches / 2, means.end());
  std::printf("{\"what\": \"%s\", \"ns\": %.2f, \"batches\": %d, \"calls\": %d}\n", what.c_str(),
              means[static_cast<std::size_t>(batches) / 2], batches, calls);
  std::fflush(stdout);
}

void measure_pairs(const std::string& kind, std::size_t mib) {
  CUdeviceptr address = 0;
  measure("cuMemAlloc + cuMemFree, " + std::to_string(mib) + " MiB, " + kind, 20, 10, [&] {
    must(driver().allocate(&address, mib * kMib), "cuMemAlloc");
    must(driver().free(address), "cuMemFree");
  });
}

void measure_allocations(bool preloaded) {
  for (const std::size_t mib : {std::size_t{2}, std::size_t{20}}) {
    measure_pairs("untagged", mib);
    if (!preloaded) continue;
    driver().scope_begin("weights");
    measure_pairs("tagged", mib);
    driver().scope_end();
  }
}

void measure_passed_through() {
  CUdeviceptr unmanaged = 0;
  must(driver().allocate(&unmanaged, 2 * kMib), "cuMemAlloc");
  auto* const current = reinterpret_cast<decltype(&::cuCtxGetCurrent)>(dlsym(driver().library, "cuCtxGetCurrent"));
  CUcontext context = nullptr;
  measure("cuCtxGetCurrent, which has no hook", 200, 10'000, [&] { current(&context); });
  CUdeviceptr base = 0;
  std::size_t size = 0;
  measure("cuMemGetAddressRange of an unmanaged pointer", 200, 2'000,
          [&] { driver().address_range(&base, &size, unmanaged + 4096); });
  measure("cuMemFree of NULL", 200, 10'000, [] { driver().free(0); });
  void* found = nullptr;
  CUdriverProcAddressQueryResult status{};
  measure("cuGetProcAddress", 100, 1'000, [&] { driver().proc_address("cuMemAlloc", &found, 12000, 0, &status); });
  must(driver().free(unmanaged), "cuMemFree");
}

void measure_gate() {
  CUmodule module = nullptr;
  CUfunction kernel = nullptr;
  CUstream stream = nullptr;
  must(driver().load_module(&module, driver().simulated ? "LOWTIDE-SIM-KERNELS" : kEmptyKernel), "cuModuleLoadData");
  must(driver().get_function(&kernel, module, driver().simulated ? "sim_add_one" : "empty"), "cuModuleGetFunction");
  must(driver().create_stream(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  std::uint64_t none = 0;
  void* arguments[] = {&none, &none};  // not looked at by the empty kernel
  // Batches that the queue of a stream takes without waiting for the device.
  measure(
      "launch of an empty kernel, enqueued", 400, 200,
      [&] { must(driver().launch(kernel, 1, 1, 1, 1, 1, 1, 0, stream, arguments, nullptr), "cuLaunchKernel"); },
      [&] { must(driver().synchronize_stream(stream), "cuStreamSynchronize"); });
  // A gated call that does nothing: shows the gate alone.
  if (driver().set_bytes(0, 0, 0) == CUDA_SUCCESS) {
    measure("cuMemsetD8 of no bytes", 200, 10'000, [] { driver().set_bytes(0, 0, 0); });
  }
  must(driver().destroy_stream(stream), "cuStreamDestroy");
}

}  // namespace

int main(int count, char** values) {
  const bool preloaded = count > 1 && std::strcmp(values[1], "--preloaded") == 0;
  try {
    must(driver().init(0), "cuInit");
    CUcontext context = nullptr;
    must(driver().primary_context(&context, 0), "cuDevicePrimaryCtxRetain");
    must(driver().set_context(context), "cuCtxSetCurrent");
    measure_passed_through();
    measure_gate();
    measure_allocations(preloaded);
  } catch (const hazards::Failed& failed) {
    std::fprintf(stderr, "bench_cost: %s\n", failed.what.c_str());
    return 2;
  }
  return 0;
}

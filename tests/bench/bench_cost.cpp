// SPDX-License-Identifier: Apache-2.0
// What a driver call costs through the doors, beside the driver's own function, in one process: batches of the two take
// turns, so that whatever else slows the machine meets both, and the figure is the median of the differences of
// neighbouring batches; launches, whose own time varies most, alternate call by call. Run under the preload. Prints a
// JSON line per figure:
//   {"what": NAME, "bare_ns": MEDIAN, "under_ns": MEDIAN, "extra_ns": MEDIAN DIFFERENCE, "batches": N, "calls": CALLS A
//   BATCH}
#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "shim/loader/real_loader.hpp"
#include "tests/gpu/hazards/driver.hpp"

namespace {

using hazards::driver;
using hazards::must;

constexpr const char* kEmptyKernel =
    ".version 6.4\n.target sm_70\n.address_size 64\n.visible .entry empty()\n{\n  ret;\n}\n";
constexpr std::size_t kMib = std::size_t{1} << 20U;

/// The driver's own function: what the doors stand before.
template <class Function>
Function* bare(Function* /*through the doors*/, const char* name) {
  static const lowtide::RealLoader loader = lowtide::find_real_loader();
  return reinterpret_cast<Function*>(loader.dlsym(driver().library, name));
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

using Call = std::function<void()>;

struct Batches {
  int count;
  int calls;  ///< in each
};

/// The mean time of a call in one batch; `settle` runs afterwards, outside the time.
double batch_mean(int calls, const Call& call, const Call& settle) {
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < calls; ++i) call();
  const std::chrono::duration<double, std::nano> time = std::chrono::steady_clock::now() - start;
  settle();
  return time.count() / calls;
}

void report(const std::string& what, double bare, double hooked, double extra, Batches batches) {
  std::printf(
      "{\"what\": \"%s\", \"bare_ns\": %.2f, \"under_ns\": %.2f, \"extra_ns\": %.2f, \"batches\": %d, "
      "\"calls\": %d}\n",
      what.c_str(), bare, hooked, extra, batches.count, batches.calls);
  std::fflush(stdout);
}

void compare(
    const std::string& what, Batches batches, const Call& bare_call, const Call& hooked_call,
    const Call& settle = [] {}) {
  std::vector<double> bare_means;
  std::vector<double> hooked_means;
  std::vector<double> differences;
  for (int batch = -batches.count / 10 - 1; batch < batches.count; ++batch) {  // the first tenth warms up
    const bool bare_first = batch % 2 == 0;
    const double first = batch_mean(batches.calls, bare_first ? bare_call : hooked_call, settle);
    const double second = batch_mean(batches.calls, bare_first ? hooked_call : bare_call, settle);
    if (batch < 0) continue;
    bare_means.push_back(bare_first ? first : second);
    hooked_means.push_back(bare_first ? second : first);
    differences.push_back(hooked_means.back() - bare_means.back());
  }
  report(what, median(bare_means), median(hooked_means), median(differences), batches);
}

/// For a call whose own time varies by far more than what is looked for: the two alternate call by call, each timed by
/// itself, and the figure is the difference of the medians of all calls.
void compare_alternating(const std::string& what, Batches batches, const Call& bare_call, const Call& hooked_call,
                         const Call& settle) {
  std::vector<double> bare_times;
  std::vector<double> hooked_times;
  const auto timed = [](const Call& call) {
    const auto start = std::chrono::steady_clock::now();
    call();
    return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start).count();
  };
  for (int batch = -batches.count / 10 - 1; batch < batches.count; ++batch) {  // the first tenth warms up
    for (int call = 0; call < batches.calls / 2; ++call) {
      const double bare_time = timed(bare_call);
      const double hooked_time = timed(hooked_call);
      if (batch < 0) continue;
      bare_times.push_back(bare_time);
      hooked_times.push_back(hooked_time);
    }
    settle();
  }
  const double bare_median = median(bare_times);
  const double hooked_median = median(hooked_times);
  report(what, bare_median, hooked_median, hooked_median - bare_median, batches);
}

void compare_pairs(const std::string& kind, std::size_t mib) {
  const auto pair = [mib](auto* allocate, auto* free) {
    return [=] {
      CUdeviceptr address = 0;
      must(allocate(&address, mib * kMib), "cuMemAlloc");
      must(free(address), "cuMemFree");
    };
  };
  const auto& d = driver();
  compare("cuMemAlloc + cuMemFree, " + std::to_string(mib) + " MiB, " + kind, {100, 10},
          pair(bare(d.allocate, "cuMemAlloc_v2"), bare(d.free, "cuMemFree_v2")), pair(d.allocate, d.free));
}

void compare_allocations() {
  for (const std::size_t mib : {std::size_t{2}, std::size_t{20}}) {
    compare_pairs("untagged", mib);
    driver().scope_begin("weights");
    compare_pairs("tagged", mib);
    driver().scope_end();
  }
}

void compare_passed_through() {
  const auto& d = driver();
  CUdeviceptr unmanaged = 0;
  must(d.allocate(&unmanaged, 2 * kMib), "cuMemAlloc");
  CUdeviceptr base = 0;
  std::size_t size = 0;
  const auto range = [&](auto* function) { return [&, function] { function(&base, &size, unmanaged + 4096); }; };
  compare("cuMemGetAddressRange of an unmanaged pointer", {400, 1'000},
          range(bare(d.address_range, "cuMemGetAddressRange_v2")), range(d.address_range));
  const auto free_null = [](auto* function) { return [function] { function(0); }; };
  compare("cuMemFree of NULL", {400, 1'000}, free_null(bare(d.free, "cuMemFree_v2")), free_null(d.free));
  must(d.free(unmanaged), "cuMemFree");
}

/// What any hook that has to do something after a launch costs at least: it hands eleven arguments on and comes back.
decltype(&::cuLaunchKernel) bare_launch = nullptr;
[[gnu::noinline]] CUresult hand_on(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                                   unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,
                                   CUstream stream, void** arguments, void** extra) {
  const CUresult result =
      bare_launch(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared, stream, arguments, extra);
  __asm__ volatile("" ::: "memory");  // keeps the call from becoming a jump
  return result;
}

void compare_gate() {
  const auto& d = driver();
  CUmodule module = nullptr;
  CUfunction kernel = nullptr;
  CUstream stream = nullptr;
  must(d.load_module(&module, d.simulated ? "LOWTIDE-SIM-KERNELS" : kEmptyKernel), "cuModuleLoadData");
  must(d.get_function(&kernel, module, d.simulated ? "sim_add_one" : "empty"), "cuModuleGetFunction");
  must(d.create_stream(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  std::uint64_t none = 0;
  void* arguments[] = {&none, &none};  // not looked at by the empty kernel
  const auto launch = [&](auto* function) {
    return [&, function] { must(function(kernel, 1, 1, 1, 1, 1, 1, 0, stream, arguments, nullptr), "cuLaunchKernel"); };
  };
  const Call settle = [&] { must(d.synchronize_stream(stream), "cuStreamSynchronize"); };
  // Batches that the queue of a stream takes without waiting for the device.
  compare_alternating("launch of an empty kernel, enqueued", {2'000, 200}, launch(bare(d.launch, "cuLaunchKernel")),
                      launch(d.launch), settle);
  bare_launch = bare(d.launch, "cuLaunchKernel");
  compare_alternating("the same by a function that only hands its arguments on", {2'000, 200}, launch(bare_launch),
                      launch(&hand_on), settle);
  // A gated call that does nothing: shows the gate alone.
  if (d.set_bytes(0, 0, 0) == CUDA_SUCCESS) {
    const auto set_nothing = [](auto* function) { return [function] { function(0, 0, 0); }; };
    compare("cuMemsetD8 of no bytes: the gate alone", {400, 1'000}, set_nothing(bare(d.set_bytes, "cuMemsetD8_v2")),
            set_nothing(d.set_bytes));
  }
  must(d.destroy_stream(stream), "cuStreamDestroy");
}

}  // namespace

int main() {
  try {
    if (driver().scope_begin == nullptr) throw hazards::Failed{"run it under liblowtide_preload.so"};
    must(driver().init(0), "cuInit");
    CUcontext context = nullptr;
    must(driver().primary_context(&context, 0), "cuDevicePrimaryCtxRetain");
    must(driver().set_context(context), "cuCtxSetCurrent");
    compare_passed_through();
    compare_gate();
    compare_allocations();
  } catch (const hazards::Failed& failed) {
    std::fprintf(stderr, "bench_cost: %s\n", failed.what.c_str());
    return 2;
  }
  return 0;
}

// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/copies/beside.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <exception>
#include <thread>
#include <vector>

#include "tests/bench/copies/machine.hpp"
#include "tests/gpu/hazards/driver.hpp"

namespace copies {
namespace {

using hazards::driver;
using hazards::must;
using hazards::require;

constexpr std::size_t kBlock = std::size_t{2} << 20U;

double milliseconds_since(std::int64_t start) { return static_cast<double>(now_ns() - start) * 1e-6; }

struct Times {
  std::vector<double> allocations;
  std::vector<double> frees;
};

void allocate_until(const std::atomic<bool>& stop, std::atomic<bool>& under_way, const std::string& tag, Times& times) {
  CUcontext context = nullptr;
  must(driver().primary_context(&context, 0), "cuDevicePrimaryCtxRetain");
  must(driver().set_context(context), "cuCtxSetCurrent");
  require(driver().scope_begin(tag.c_str()) == LOWTIDE_OK, "lowtide_scope_begin");
  while (!stop) {
    CUdeviceptr block = 0;
    auto start = now_ns();
    must(driver().allocate(&block, kBlock), "cuMemAlloc");
    times.allocations.push_back(milliseconds_since(start));
    start = now_ns();
    must(driver().free(block), "cuMemFree");
    times.frees.push_back(milliseconds_since(start));
    if (times.frees.size() == 20) {  // the first ones pay for what is made once
      if (!under_way) times = {};
      under_way = true;
    }
  }
  driver().scope_end();
}

/// The median of a few, since other programs come and go.
std::int64_t settled_available_bytes() {
  std::vector<std::int64_t> seen;
  for (int i = 0; i < 9; ++i) {
    seen.push_back(available_bytes());
    std::this_thread::sleep_for(std::chrono::milliseconds(40));
  }
  std::nth_element(seen.begin(), seen.begin() + 4, seen.end());
  return seen[4];
}

}  // namespace

AllocationTimes allocate_during(const std::string& tag, const std::function<void()>& work) {
  std::atomic<bool> stop = false;
  std::atomic<bool> under_way = false;
  std::exception_ptr failure;
  std::string failed_call;
  Times times;
  std::thread thread([&] {
    try {
      allocate_until(stop, under_way, tag, times);
    } catch (const hazards::Failed& failed) {
      failed_call = failed.what;
    }
    under_way = true;
  });
  while (!under_way) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  try {
    work();
  } catch (...) {
    failure = std::current_exception();
  }
  stop = true;
  thread.join();
  if (failure) std::rethrow_exception(failure);
  require(failed_call.empty(), "the other thread: " + failed_call);
  require(!times.allocations.empty() && !times.frees.empty(), "the other thread allocated nothing meanwhile");
  std::sort(times.allocations.begin(), times.allocations.end());
  return {times.allocations[times.allocations.size() / 2], times.allocations.back(),
          *std::max_element(times.frees.begin(), times.frees.end()), times.allocations.size()};
}

ForkCost fork_cost() {
  const auto before = settled_available_bytes();
  const auto start = now_ns();
  const pid_t child = fork();
  if (child == 0) {
    for (;;) ::pause();
  }
  const double time = milliseconds_since(start);
  require(child > 0, "fork failed");
  const auto after = settled_available_bytes();
  (void)kill(child, SIGKILL);
  (void)waitpid(child, nullptr, 0);
  return {before - after, time};
}

}  // namespace copies

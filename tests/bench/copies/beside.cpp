// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/copies/beside.hpp"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <exception>
#include <optional>
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

void use_device() {
  CUcontext context = nullptr;
  must(driver().primary_context(&context, 0), "cuDevicePrimaryCtxRetain");
  must(driver().set_context(context), "cuCtxSetCurrent");
}

struct Times {
  std::vector<double> allocations;
  std::vector<double> frees;
};

/// One block of 2 MiB that comes and goes; by Lowtide under a tag, or by the bare calls that Lowtide makes for it.
class Block {
 public:
  explicit Block(const std::string& tag) {
    use_device();
    if (tag.empty()) {
      bare_.emplace(1, kBlock);
      bare_->pause();
    } else {
      require(driver().scope_begin(tag.c_str()) == LOWTIDE_OK, "lowtide_scope_begin");
    }
  }
  void make() {
    if (bare_) return bare_->resume();
    must(driver().allocate(&address_, kBlock), "cuMemAlloc");
  }
  void drop() {
    if (bare_) return bare_->pause();
    must(driver().free(address_), "cuMemFree");
  }

 private:
  std::optional<BareBlocks> bare_;
  CUdeviceptr address_ = 0;
};

void allocate_until(const std::atomic<bool>& stop, std::atomic<bool>& under_way, const std::string& tag, Times& times) {
  Block block(tag);
  while (!stop) {
    auto start = now_ns();
    block.make();
    times.allocations.push_back(milliseconds_since(start));
    start = now_ns();
    block.drop();
    times.frees.push_back(milliseconds_since(start));
    if (times.frees.size() == 20) {  // the first ones pay for what is made once
      if (!under_way) times = {};
      under_way = true;
    }
  }
  if (!tag.empty()) driver().scope_end();
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

void pin_bare(std::size_t bytes) {
  constexpr std::size_t slab = std::size_t{32} << 20U;
  const std::size_t count = bytes / slab;
  std::vector<std::atomic<void*>> touched(count);
  std::atomic<std::size_t> next = 0;
  std::vector<std::thread> threads(std::max(1U, std::thread::hardware_concurrency() * 7 / 8));
  for (auto& thread : threads) {
    thread = std::thread([&] {
      for (std::size_t i = next++; i < count; i = next++) {
        void* memory = ::mmap(nullptr, slab, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        (void)::madvise(memory, slab, MADV_HUGEPAGE);
        for (std::size_t at = 0; memory != MAP_FAILED && at < slab; at += 4096) static_cast<char*>(memory)[at] = 1;
        touched[i] = memory;
        touched[i].notify_one();
      }
    });
  }
  std::string failure;
  for (auto& memory : touched) {
    memory.wait(nullptr);
    if (memory == MAP_FAILED || extra().register_host(memory, slab, 0) != CUDA_SUCCESS) failure = "no pinned memory";
  }
  for (auto& thread : threads) thread.join();
  for (auto& memory : touched) {
    if (memory == MAP_FAILED) continue;
    (void)extra().unregister_host(memory);
    (void)::munmap(memory, slab);
  }
  require(failure.empty(), failure);
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

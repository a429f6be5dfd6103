// SPDX-License-Identifier: Apache-2.0
#include <sys/mman.h>

#include <algorithm>

#include "allocator/core/trial_memory.hpp"
#include "backends/portable/contract.hpp"

namespace lowtide::portable {
namespace {

constexpr Bytes most_of_a_cycle = 1_GiB;

/// Page-aligned host memory, registered as far as the driver likes it.
class HostMemory {
 public:
  HostMemory(Backend& backend, Bytes size) : backend_(backend), size_(size) {
    void* const got = ::mmap(nullptr, size.value, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (got == MAP_FAILED) return;
    memory_ = got;
    registered_ = backend_.register_host(memory_, size_).has_value();
  }
  HostMemory(const HostMemory&) = delete;
  HostMemory& operator=(const HostMemory&) = delete;
  ~HostMemory() {
    if (registered_) (void)backend_.unregister_host(memory_);
    if (memory_ != nullptr) (void)::munmap(memory_, size_.value);
  }
  void* get() const { return memory_; }

 private:
  Backend& backend_;
  const Bytes size_;
  void* memory_ = nullptr;
  bool registered_ = false;
};

/// A pause and a resume of one block.
class Cycle : private TrialMemory {
 public:
  using TrialMemory::TrialMemory;

  Status play(void* host, Measures& measures) {
    if (auto status = reserve(); !status) return status;
    if (auto status = get(); !status) return status;
    if (auto status = backend_.fill(range_, 0x77); !status) return status;
    if (auto status = backend_.finish_copies(); !status) return status;
    if (auto status = timed(measures.copy_out, [&] { return copy(backend_.copy_out(host, range_)); }); !status)
      return status;
    if (auto status = timed(measures.give, [this] { return give(); }); !status) return status;
    auto status = timed(measures.get, [this] { return get(); });
    measures.moved = !status && status.error().code() == Code::moved && !backend_.capabilities().stable_address;
    if (measures.moved) return {};
    if (!status) return status;
    return timed(measures.copy_in, [&] { return copy(backend_.copy_in(range_, host)); });
  }

 private:
  template <class Call>
  static Status timed(std::chrono::duration<double>& time, Call call) {
    const auto start = std::chrono::steady_clock::now();
    auto status = call();
    time = std::chrono::steady_clock::now() - start;
    return status;
  }
  Status copy(const Status& started) { return started ? backend_.finish_copies() : started; }
  Status give() {
    if (auto status = backend_.synchronise(); !status) return status;
    if (auto status = unmap(); !status) return status;
    if (auto status = release(); !status) return status;
    return backend_.capabilities().reserves_each ? backend_.keep_address(range_) : Status();
  }
  Status get() {
    if (auto status = take(backend_.create(range_)); !status) return status;
    if (auto status = map(); !status) return status;
    return backend_.set_access(range_, {});
  }
};

/// One handle of a size, got and given back.
class Handle : private TrialMemory {
 public:
  using TrialMemory::TrialMemory;
  bool can_be_had() { return reserve() && take(backend_.create(range_)) && map() && backend_.set_access(range_, {}); }
};

Bytes largest_handle(Backend& backend, Bytes free) {
  Bytes largest;
  for (Bytes size = backend.capabilities().granularity; size * 2 <= free; size = size * 2) {
    if (!Handle(backend, size).can_be_had()) break;
    largest = size;
  }
  return largest;
}

}  // namespace

Result<Measures> measure(Backend& backend) {
  const auto memory = backend.memory_info();
  if (!memory) return fail(memory.error());
  Measures measures;
  measures.largest_handle = largest_handle(backend, memory->free);
  const Bytes size = std::min(most_of_a_cycle, measures.largest_handle);
  const HostMemory host(backend, size);
  if (size.value == 0 || host.get() == nullptr) return measures;
  // The first one pays for what later ones find: pages of the host, tables of the driver.
  for (int round = 0; round < 2; ++round) {
    if (auto status = Cycle(backend, size).play(host.get(), measures); !status) return fail(status.error());
  }
  measures.cycle = size;
  return measures;
}

}  // namespace lowtide::portable

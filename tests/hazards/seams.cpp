// SPDX-License-Identifier: Apache-2.0
#include "tests/hazards/seams.hpp"

#include <link.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

extern "C" {
void* __libc_malloc(size_t size);
void* __libc_calloc(size_t count, size_t size);
void* __libc_realloc(void* memory, size_t size);
void* __libc_memalign(size_t alignment, size_t size);
}

namespace {

constinit thread_local std::uint64_t left_to_failure = 0;
constinit thread_local bool own_failed = false;

constinit std::atomic<std::int64_t> left_of_thread{0};
constinit std::atomic<bool> thread_failed{false};
constinit std::array<char, 16> name_of_thread{};

struct Stop {
  std::atomic<std::uint64_t> start{0};
  std::atomic<std::uint64_t> end{0};
  std::atomic<bool> armed{false};
  std::atomic<bool> reached{false};
  std::atomic<bool> go{false};

  void arm(std::uint64_t from, std::uint64_t to) {
    start = from;
    end = to;
    reached = false;
    go = false;
    armed = true;
  }
  void disarm() {
    armed = false;
    go = true;
  }
  void pass(std::uint64_t address, std::uint64_t size = 1) {
    if (address + size <= start || address >= end || !armed.exchange(false)) return;
    reached = true;
    while (!go) {
      const timespec moment{0, 200'000};
      ::nanosleep(&moment, nullptr);
    }
  }
};
constinit Stop at_mapping;
constinit Stop at_advice;
constinit Stop at_allocation;
constinit std::atomic<std::int64_t> left_to_stop{0};

bool fails_in_named_thread() noexcept {
  if (left_of_thread.load(std::memory_order_relaxed) <= 0) return false;
  std::array<char, 16> name{};
  ::prctl(PR_GET_NAME, name.data());
  if (std::strcmp(name.data(), name_of_thread.data()) != 0 || left_of_thread.fetch_sub(1) != 1) return false;
  thread_failed = true;
  return true;
}

// Where liblowtide.so lies; known once a failure is wanted.
constinit std::atomic<std::uintptr_t> code_start{0};
constinit std::atomic<std::uintptr_t> code_end{0};

void find_lowtide() {
  const auto visit = [](dl_phdr_info* library, std::size_t, void*) {
    if (std::strstr(library->dlpi_name, "/liblowtide.so") == nullptr) return 0;
    for (int i = 0; i < library->dlpi_phnum; ++i) {
      const auto& segment = library->dlpi_phdr[i];
      if (segment.p_type != PT_LOAD || (segment.p_flags & PF_X) == 0) continue;
      code_start = library->dlpi_addr + segment.p_vaddr;
      code_end = code_start + segment.p_memsz;
    }
    return 1;
  };
  ::dl_iterate_phdr(visit, nullptr);
}

/// `caller` is what asked for memory: operator new of liblowtide.so, or the driver, whose failures are another matter.
bool fails(const void* caller) noexcept {
  const auto address = reinterpret_cast<std::uintptr_t>(caller);
  if (address < code_start || address >= code_end) return false;
  if (left_to_stop.load(std::memory_order_relaxed) > 0 && left_to_stop.fetch_sub(1) == 1) at_allocation.pass(1);
  bool now = fails_in_named_thread();
  if (left_to_failure > 0 && --left_to_failure == 0) now = own_failed = true;
  if (now) errno = ENOMEM;
  return now;
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

void* malloc(size_t size) { return fails(__builtin_return_address(0)) ? nullptr : __libc_malloc(size); }
void* calloc(size_t count, size_t size) {
  return fails(__builtin_return_address(0)) ? nullptr : __libc_calloc(count, size);
}
void* realloc(void* memory, size_t size) {
  return fails(__builtin_return_address(0)) ? nullptr : __libc_realloc(memory, size);
}
void* aligned_alloc(size_t alignment, size_t size) {
  return fails(__builtin_return_address(0)) ? nullptr : __libc_memalign(alignment, size);
}

void* mmap(void* address, size_t size, int protection, int flags, int file, off_t offset) {
  at_mapping.pass(reinterpret_cast<std::uint64_t>(address), size);
  return reinterpret_cast<void*>(::syscall(SYS_mmap, address, size, protection, flags, file, offset));
}

int madvise(void* address, size_t size, int advice) {
  if (advice == MADV_DONTFORK) at_advice.pass(reinterpret_cast<std::uint64_t>(address));
  return static_cast<int>(::syscall(SYS_madvise, address, size, advice));
}

}  // extern "C"
#pragma GCC visibility pop

namespace hazards {

FailingMemory::FailingMemory(std::uint64_t nth) {
  find_lowtide();
  own_failed = false;
  left_to_failure = nth;
}
FailingMemory::~FailingMemory() { left_to_failure = 0; }
bool FailingMemory::failed() const { return own_failed; }

FailingMemoryOfThread::FailingMemoryOfThread(const char* name, std::uint64_t nth) {
  find_lowtide();
  std::strncpy(name_of_thread.data(), name, name_of_thread.size() - 1);
  thread_failed = false;
  left_of_thread = static_cast<std::int64_t>(nth);
}
FailingMemoryOfThread::~FailingMemoryOfThread() { left_of_thread = 0; }
bool FailingMemoryOfThread::failed() const { return thread_failed; }

StopAtMapping::StopAtMapping(std::uint64_t start, std::uint64_t size) { at_mapping.arm(start, start + size); }
StopAtMapping::~StopAtMapping() { at_mapping.disarm(); }
bool StopAtMapping::reached() const { return at_mapping.reached; }
void StopAtMapping::go() { at_mapping.disarm(); }

StopAtNewBackup::StopAtNewBackup() { at_advice.arm(1, ~std::uint64_t{0}); }
StopAtNewBackup::~StopAtNewBackup() { at_advice.disarm(); }
bool StopAtNewBackup::reached() const { return at_advice.reached; }
void StopAtNewBackup::go() { at_advice.disarm(); }

StopAtAllocation::StopAtAllocation(std::uint64_t nth) {
  find_lowtide();
  at_allocation.arm(1, 2);
  left_to_stop = static_cast<std::int64_t>(nth);
}
StopAtAllocation::~StopAtAllocation() {
  left_to_stop = 0;
  at_allocation.disarm();
}
bool StopAtAllocation::reached() const { return at_allocation.reached; }
void StopAtAllocation::go() { at_allocation.disarm(); }

}  // namespace hazards

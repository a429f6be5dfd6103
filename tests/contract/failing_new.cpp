// SPDX-License-Identifier: Apache-2.0
#include "tests/contract/failing_new.hpp"

#include <cstddef>
#include <cstdlib>
#include <new>
#include <utility>

namespace {

struct Plan {
  std::uint64_t countdown = 0;  // 0: none fails
  bool for_good = false;
  bool failed = false;
};
thread_local Plan plan;

bool is_to_fail() noexcept {
  if (plan.countdown == 0) return false;
  if (plan.countdown > 1) {
    --plan.countdown;
    return false;
  }
  if (!plan.for_good) plan.countdown = 0;
  return plan.failed = true;
}

void* allocate(std::size_t size, std::size_t alignment) noexcept {
  void* memory = nullptr;
  if (is_to_fail() || ::posix_memalign(&memory, alignment, size == 0 ? 1 : size) != 0) return nullptr;
  return memory;
}

void* allocate_or_throw(std::size_t size, std::size_t alignment) {
  void* const memory = allocate(size, alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

constexpr std::size_t usual = alignof(std::max_align_t);
std::size_t number(std::align_val_t alignment) noexcept { return static_cast<std::size_t>(alignment); }

}  // namespace

// All forms: a sanitizer's runtime has those that are left out, and takes note of who allocated with which.
void* operator new(std::size_t size) { return allocate_or_throw(size, usual); }
void* operator new[](std::size_t size) { return allocate_or_throw(size, usual); }
void* operator new(std::size_t size, std::align_val_t to) { return allocate_or_throw(size, number(to)); }
void* operator new[](std::size_t size, std::align_val_t to) { return allocate_or_throw(size, number(to)); }
void* operator new(std::size_t size, const std::nothrow_t&) noexcept { return allocate(size, usual); }
void* operator new[](std::size_t size, const std::nothrow_t&) noexcept { return allocate(size, usual); }
void* operator new(std::size_t size, std::align_val_t to, const std::nothrow_t&) noexcept {
  return allocate(size, number(to));
}
void* operator new[](std::size_t size, std::align_val_t to, const std::nothrow_t&) noexcept {
  return allocate(size, number(to));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, const std::nothrow_t&) noexcept { std::free(memory); }
void operator delete[](void* memory, const std::nothrow_t&) noexcept { std::free(memory); }

namespace lowtide::test {

FailingNew::FailingNew(std::uint64_t nth, bool for_good) noexcept { plan = {nth, for_good, false}; }
FailingNew::~FailingNew() { plan = {}; }
bool FailingNew::failed() const noexcept { return plan.failed; }

namespace {

cuda::Driver real_driver;

/// No allocation of the calling thread fails while this lives.
class Shelter {
 public:
  Shelter() noexcept : suspended_(std::exchange(plan, {})) {}
  Shelter(const Shelter&) = delete;
  Shelter& operator=(const Shelter&) = delete;
  ~Shelter() { plan = suspended_; }

 private:
  Plan suspended_;
};

template <auto Member>
struct Sheltered;

template <class... Arguments, CUresult (*cuda::Driver::*Member)(Arguments...)>
struct Sheltered<Member> {
  static CUresult call(Arguments... arguments) {
    const Shelter shelter;
    return (real_driver.*Member)(arguments...);
  }
};

}  // namespace

cuda::Driver sheltered_from_failing_new(const cuda::Driver& real) {
  real_driver = real;
  cuda::Driver table;
#define DRIVER(function) table.function = &Sheltered<&cuda::Driver::function>::call;
#include "backends/cuda/driver.def"
#undef DRIVER
  return table;
}

}  // namespace lowtide::test

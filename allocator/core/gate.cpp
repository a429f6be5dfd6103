// SPDX-License-Identifier: Apache-2.0
#include "allocator/core/gate.hpp"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cinttypes>
#include <new>
#include <thread>
#include <utility>

#include "allocator/core/uncancelled.hpp"

namespace lowtide {
namespace {

const Error ending(Code::busy, "the process is ending");

bool membarrier(int command) noexcept { return ::syscall(SYS_membarrier, command, 0, 0) == 0; }

}  // namespace

Gate::Gate() noexcept : has_membarrier_(membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED)) {
  if (has_membarrier_) word_.store(open, std::memory_order_relaxed);
}

Gate::~Gate() {
  for (auto* visitor = visitors_.load(std::memory_order_acquire); visitor != nullptr;) {
    delete std::exchange(visitor, visitor->next);
  }
}

GateVisitor* Gate::add_visitor() noexcept {
  for (auto* visitor = visitors_.load(std::memory_order_acquire); visitor != nullptr; visitor = visitor->next) {
    bool free = false;
    if (visitor->taken.compare_exchange_strong(free, true, std::memory_order_acquire)) return visitor;
  }
  auto* visitor = new (std::nothrow) GateVisitor(word_);
  if (visitor == nullptr) return nullptr;
  visitor->next = visitors_.load(std::memory_order_relaxed);
  while (!visitors_.compare_exchange_weak(visitor->next, visitor, std::memory_order_seq_cst)) {
  }
  return visitor;
}

bool Gate::enter_slowly(GateVisitor& visitor, std::uint32_t depth) noexcept {
  if (depth > 0) return true;  // waiting inside a gated call would wait for itself
  for (;;) {
    // In the one order of all seq_cst operations this comes before the look at the gate, or after the closer's look at
    // us.
    visitor.inside.exchange(1, std::memory_order_seq_cst);
    if (!closed_.load(std::memory_order_seq_cst)) return true;
    visitor.inside.store(0, std::memory_order_release);
    if (!wait_until_open()) return false;
  }
}

bool Gate::enter_unlisted() noexcept {
  for (;;) {
    unlisted_.fetch_add(1, std::memory_order_seq_cst);
    if (!closed_.load(std::memory_order_seq_cst)) return true;
    unlisted_.fetch_sub(1, std::memory_order_release);
    if (!wait_until_open()) return false;
  }
}

std::uint64_t Gate::inside() const noexcept {
  std::uint64_t count = unlisted_.load(std::memory_order_seq_cst);
  for (auto* visitor = visitors_.load(std::memory_order_seq_cst); visitor != nullptr; visitor = visitor->next) {
    count += visitor->inside.load(std::memory_order_seq_cst) > 0 ? 1 : 0;
  }
  return count;
}

Status Gate::close(std::chrono::steady_clock::time_point deadline) noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (is_open_for_good()) return fail(ending);
    holds_.store(true, std::memory_order_seq_cst);
    shut();
  }
  if (has_membarrier_) membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED);
  for (auto pause = std::chrono::microseconds{10};; pause = std::min(pause * 2, std::chrono::microseconds{1000})) {
    const auto count = inside();
    if (is_open_for_good()) return fail(ending);
    if (count == 0) return {};
    if (std::chrono::steady_clock::now() >= deadline) {
      return fail(
          Error::format(Code::busy, "%" PRIu64 " thread(s) did not come back from a launch or a copy in time", count));
    }
    std::this_thread::sleep_for(pause);
  }
}

void Gate::shut() noexcept {
  closed_.store(true, std::memory_order_seq_cst);
  word_.store(checked, std::memory_order_seq_cst);
}

void Gate::refuse() noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (is_open_for_good()) return;
    refuses_.store(true, std::memory_order_seq_cst);
    shut();
  }
  if (has_membarrier_) membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED);
  opened_.notify_all();
}

void Gate::open_if_unused() noexcept {
  if (holds_.load(std::memory_order_seq_cst) || refuses_.load(std::memory_order_seq_cst)) return;
  closed_.store(false, std::memory_order_seq_cst);
  if (has_membarrier_) word_.store(open, std::memory_order_release);
}

void Gate::end(std::atomic<bool>& reason) noexcept {
  {
    const std::lock_guard lock(mutex_);
    reason.store(false, std::memory_order_seq_cst);
    open_if_unused();
  }
  opened_.notify_all();
}

void Gate::reopen() noexcept {
  end_refusal();
  end_hold();
}

void Gate::open_for_good() noexcept {
  open_for_good_.store(true, std::memory_order_release);
  reopen();
}

bool Gate::wait_until_open() noexcept {
  if (!closed()) return true;
  const Uncancelled uncancelled;
  const ObservedWait wait(observer_, Observer::Wait::gate);
  std::unique_lock lock(mutex_);
  ++waiting_;
  opened_.wait(lock, [this] { return !closed() || (refuses_ && !holds_); });
  --waiting_;
  return !closed();
}

}  // namespace lowtide

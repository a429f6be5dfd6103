// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>

#include "allocator/base/result.hpp"
#include "allocator/core/observer.hpp"

namespace lowtide {

/// One thread's place at the gate: how many gated calls it is inside. Lives as long as the gate; reused after its
/// thread ended.
struct alignas(64) GateVisitor {
  explicit GateVisitor(const std::atomic<std::uint32_t>& gate_word) : word(&gate_word) {}

  std::atomic<std::uint32_t> inside{0};
  const std::atomic<std::uint32_t>* const word;  ///< the gate's: 0 while it is open
  std::atomic<bool> taken{true};
  GateVisitor* next = nullptr;
};

/// The check at every launch, copy and memset.
///
/// The open path is one store and one relaxed load. A thread announces itself (inside = 1) and then looks at the gate;
/// who closes it sets the word and then looks at the threads. Each side must see the other's store, which needs a full
/// fence between the two steps. The frequent side gets it for free: the closer makes every thread of the process pass a
/// fence by membarrier(2). Where the kernel has no membarrier, the word stays at `checked` and visitors fence for
/// themselves.
///
/// Thread-safe. `enter` and `leave` never allocate and never fail.
class Gate {
 public:
  Gate() noexcept;
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;
  /// No thread has a place any more.
  ~Gate();

  /// Whom to tell of waits; it outlives the gate. Before it is closed for the first time.
  void set_observer(Observer& observer) noexcept { observer_ = &observer; }

  /// A place for the calling thread; null if memory is short (the visits then count in one shared place).
  GateVisitor* add_visitor() noexcept;
  /// Its thread ends. One that was cancelled inside a gated call never left it.
  static void remove_visitor(GateVisitor* visitor) noexcept {
    visitor->inside.store(0, std::memory_order_release);
    visitor->taken.store(false, std::memory_order_release);
  }

  /// Waits while the gate is closed. Nested calls of one thread pass. False: not inside, since the gate refuses.
  [[nodiscard]] bool enter(GateVisitor* visitor) noexcept {
    if (visitor == nullptr) return enter_unlisted();
    const auto depth = visitor->inside.load(std::memory_order_relaxed);
    visitor->inside.store(depth + 1, std::memory_order_relaxed);
    std::atomic_signal_fence(std::memory_order_seq_cst);  // the compiler keeps the order; membarrier does the rest
    return (word_.load(std::memory_order_relaxed) == open && depth == 0) || enter_slowly(*visitor, depth);
  }
  void leave(GateVisitor* visitor) noexcept {
    const auto depth = visitor == nullptr ? 0 : visitor->inside.load(std::memory_order_relaxed);
    if (depth > 0)
      visitor->inside.store(depth - 1, std::memory_order_release);
    else
      unlisted_.fetch_sub(1, std::memory_order_release);  // it got its place after it had entered
  }

  /// Closes the gate and waits until no thread is inside a gated call. Code::busy at the deadline; the gate stays
  /// closed. Code::busy at once, and the gate is open, when it has been opened for good.
  Status close(std::chrono::steady_clock::time_point deadline) noexcept;
  /// Closes the gate without waiting for who is inside, and whoever comes is sent away instead of waiting until it is
  /// opened. While it is also closed by `close`, threads wait: they may find everything back.
  void refuse() noexcept;
  /// What `close`, and what `refuse` began ends; with the last of both the gate is open.
  void end_hold() noexcept { end(holds_); }
  void end_refusal() noexcept { end(refuses_); }
  void reopen() noexcept;
  /// Opens the gate, and it is never closed again: the process ends, and who waited here now would be waited for.
  void open_for_good() noexcept;
  bool is_open_for_good() const noexcept { return open_for_good_.load(std::memory_order_acquire); }
  /// In the child of a fork: opens without the lock, which another thread of the parent may have held.
  void abandon() noexcept { closed_.store(false, std::memory_order_seq_cst); }
  /// Waits while the gate is closed, for calls that are not counted. False: the gate refuses.
  bool wait_until_open() noexcept;
  /// Threads that wait for it to open.
  std::size_t waiting() const noexcept {
    const std::lock_guard lock(mutex_);
    return waiting_;
  }
  bool closed() const noexcept { return closed_.load(std::memory_order_acquire); }

 private:
  // Values of word_: `checked` means open, but look carefully.
  static constexpr std::uint32_t open = 0;
  static constexpr std::uint32_t checked = 1;

  bool enter_slowly(GateVisitor& visitor, std::uint32_t depth) noexcept;
  bool enter_unlisted() noexcept;
  void shut() noexcept;
  void end(std::atomic<bool>& reason) noexcept;
  void open_if_unused() noexcept;
  std::uint64_t inside() const noexcept;

  Observer* observer_ = nullptr;
  std::atomic<std::uint32_t> word_{checked};
  std::atomic<bool> closed_{false};
  // Why it is closed; changed under `mutex_`.
  std::atomic<bool> holds_{false};
  std::atomic<bool> refuses_{false};
  std::atomic<bool> open_for_good_{false};
  bool has_membarrier_ = false;
  std::atomic<GateVisitor*> visitors_{nullptr};
  std::atomic<std::uint32_t> unlisted_{0};
  mutable std::mutex mutex_;
  std::size_t waiting_ = 0;
  std::condition_variable opened_;
};

}  // namespace lowtide
